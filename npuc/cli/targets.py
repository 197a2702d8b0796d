"""`npuc targets`."""

from __future__ import annotations

import json

import click

from npuc.cli.options import json_option


@click.command("targets")
@click.argument("target", required=False, metavar="[TARGET]")
@json_option
def command(target: str | None, as_json: bool) -> None:
    """List the machines, or show every number of one with its source.

    TARGET is a name from the list or the path of a .toml file, which is checked. A number without a source, or whose
    source says so, is assumed; results that rest on it say that.
    """
    from npuc.report.targets import list_targets, list_text, show_target, show_text

    if target is None:
        rows = list_targets()
        click.echo(json.dumps(rows) if as_json else list_text(rows), nl=as_json)
    else:
        found = show_target(target)
        click.echo(json.dumps(found) if as_json else show_text(found), nl=as_json)
