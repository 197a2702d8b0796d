"""`npuc diff`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from npuc.cli.options import json_option


@click.command("diff")
@click.argument("before", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("after", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--fail-on", multiple=True, metavar="METRIC>LIMIT",
    help="Fail only where a number of an entry grows by more than this, such as 'tasks>1%' or 'cmx>4096'. "
    "METRIC is tasks, barriers, cmx, ddr or scratch. May be repeated.",
)  # fmt: skip
@json_option
def command(before: Path, after: Path, fail_on: tuple[str, ...], as_json: bool) -> None:
    """Compare two programs, each a blob or the text of `npuc disasm`.

    Tasks are matched by entry, node, kernel and tile, buffers by name; what was added, removed or resized is printed.
    Exit code 0: equal (or within --fail-on), 1: they differ.
    """
    from npuc.report.diff import diff

    result = diff(before, after, fail_on)
    if as_json:
        click.echo(json.dumps({"different": result.different, "lines": result.lines, "exceeded": result.exceeded}))
    else:
        click.echo(result.text, nl=False)
    sys.stdout.flush()
    raise click.exceptions.Exit(result.exit_code)
