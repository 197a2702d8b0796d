"""`npuc inspect`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from npuc.cli.options import json_option


@click.command("inspect")
@click.argument("blob", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def command(blob: Path, as_json: bool) -> None:
    """Show what BLOB holds.

    For each entry the tasks by engine, the peak of the on-chip memory and its capacity, and the DDR bytes; then the
    sections of the file, and the states with their class and why they have it.
    """
    from npuc.report.inspect import inspect_blob, inspect_text

    found = inspect_blob(blob)
    click.echo(json.dumps(found) if as_json else inspect_text(found), nl=as_json)
