"""`npuc ops`."""

from __future__ import annotations

import json
from difflib import get_close_matches

import click

from npuc.cli.options import json_option


@click.command("ops")
@click.option("--op", metavar="NAME", help="Only this operator, with all that is known of it.")
@json_option
def command(op: str | None, as_json: bool) -> None:
    """List the operators that npuc compiles, and how each is done.

    kernel: on the named engine. written out, definition: in terms of other operators. rewritten: said in operator
    set 21. dequantised: becomes a constant of floats. folded: computed by the compiler. on request: by the
    host, with --host-ops.
    """
    from npuc.report.ops import details, operators, text

    ops = operators()
    if op is not None:
        chosen = [each for each in ops if op in (each.name, f"{each.domain}.{each.name}")]
        if not chosen:
            close = get_close_matches(op, [each.name for each in ops], n=1)
            raise click.UsageError(f"npuc has no operator {op!r}{f'; did you mean {close[0]!r}?' if close else ''}")
        ops = chosen
    if as_json:
        click.echo(json.dumps([each.json() for each in ops]))
    else:
        click.echo("".join(map(details, ops)) if op is not None else text(ops), nl=False)
