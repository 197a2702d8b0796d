"""`npuc disasm`."""

from __future__ import annotations

from pathlib import Path

import click

from npuc.cli.options import keep_inputs, output_option


@click.command("disasm")
@click.argument("blob", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_option("-o", "--output", metavar="FILE", help="A file instead of stdout.")
@click.option("--full", is_flag=True, help="Every record, address and instruction; not for version control.")
def command(blob: Path, output: Path | None, full: bool) -> None:
    """Print BLOB's whole program as text that is stable enough for version control.

    Tasks stand by entry and node, weights as digests; a change of one tile size changes a few lines. `npuc diff`
    compares such texts, too.
    """
    from npuc.report.disasm import disasm

    keep_inputs(output, blob)
    text = disasm(blob, full)
    if output is None:
        click.echo(text, nl=False)
    else:
        from npuc.emit.atomic import atomic_file

        with atomic_file(output) as file:
            file.write(text.encode())
