"""`npuc estimate`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from npuc.cli.options import POSITIVE, dim_option, is_blob, json_option
from npuc.cli.progress import progress

PRECISIONS = ("f16", "f32", "int8", "int4")


@click.command("estimate")
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--target", "targets", multiple=True, metavar="T",
    help="Machine: a name or a .toml. May be repeated.  [default: all that npuc knows]",
)  # fmt: skip
@click.option("--prompt", type=POSITIVE, metavar="N", help="Tokens of the prompt.  [default: 1024]")
@click.option("--tokens", type=POSITIVE, metavar="M", help="New tokens behind it.  [default: 128]")
@click.option("--chunk", type=POSITIVE, metavar="C", help="Prompt tokens that one run reads.  [default: 128]")
@click.option(
    "--precision", type=click.Choice(PRECISIONS), default="f16", show_default=True,
    help="Stored type of weights. int8, int4: codes with one scale per output channel, all else f16.",
)  # fmt: skip
@click.option(
    "--dma-latency", type=click.Choice(["held", "overlapped"]), default="held", show_default=True,
    help="Whether a port stands still for the latency of its transfers.",
)  # fmt: skip
@dim_option
@json_option
def command(
    model: Path,
    targets: tuple[str, ...],
    prompt: int | None,
    tokens: int | None,
    chunk: int | None,
    precision: str,
    dma_latency: str,
    dims: tuple[tuple[str, int], ...],
    as_json: bool,
) -> None:
    """Say whether MODEL fits a machine, and how fast it will be, before any compile.

    MODEL is an ONNX file, or an exported folder. Shapes are enough: no weight is read, and the file of weights may be
    missing. Each figure is an analytical estimate of what a compiled program takes, beside a bound that none can beat.

    \b
    npuc estimate exported/
    npuc estimate exported/ --target npu40xx --prompt 4000 --tokens 96 --precision int4
    npuc models shape llama2-7b -o llama2 && npuc estimate llama2 --json
    """
    if is_blob(model):
        raise click.UsageError(f"{model} is compiled already: `npuc profile` says how long it takes")
    from npuc.estimate.estimate import estimate
    from npuc.estimate.subject import Sizes, subject
    from npuc.estimate.text import estimate_text
    from npurt.collector import collection_paused
    from npurt.target import load_target, target_names

    machines = [load_target(name) for name in targets or target_names()]
    sizes = Sizes(prompt, tokens, chunk, dict(dims))
    # graphs are cycles that live to the end: the search for garbage takes a sixth of the time and frees nothing
    with progress() as report, collection_paused():
        found = estimate(subject(model, sizes, report), machines, precision, held=dma_latency == "held")
    click.echo(json.dumps(found) if as_json else estimate_text(found), nl=as_json)
