"""`npuc profile`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from npuc.cli.options import json_option, output_option


@click.command("profile")
@click.argument("blob", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--entry", metavar="E", help="One entry.  [default: all]")
@click.option("--target", metavar="T", help="Machine: a name or a .toml.  [default: the blob's]")
@click.option("--n-past", type=click.IntRange(min=0), metavar="N", help="Rows of the cache.  [default: full]")
@click.option(
    "--dma-latency", type=click.Choice(["held", "overlapped"]), default="held", show_default=True,
    help="Whether a port stands still for the latency of its transfer, or goes on to the next.",
)  # fmt: skip
@output_option("--trace", metavar="FILE", help="Write a Chrome trace, which Perfetto opens.")
@json_option
def command(
    blob: Path, entry: str | None, target: str | None, n_past: int | None, dma_latency: str, trace: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Show where the time of BLOB's entries goes, without running them: no data are needed.

    For each entry its time and the ratio to a bound that tile sizes cannot move, each engine's work and why it stood
    still, the bytes between the memories, and the graph nodes that the time is spent on.
    """
    from npuc.report.profile import profile, profile_json
    from npuc.report.profile_text import profile_text
    from npuc.report.trace import write_trace

    found = profile(blob, entry=entry, target=target, n_past=n_past, reading=dma_latency)
    if trace is not None:
        write_trace(trace, [(run.chosen, run.levels) for run in found.runs])
    result = profile_json(found)
    click.echo(json.dumps(result) if as_json else profile_text(result), nl=as_json)
