"""`npuc bench`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from npuc.cli.options import POSITIVE, fast_mode_option, json_option, settle_mode
from npuc.cli.progress import progress


@click.command("bench")
@click.argument("blob", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--prompt-tokens", type=POSITIVE, default=128, show_default=True, metavar="N", help="Tokens of a prompt.")
@click.option(
    "--gen-tokens", type=POSITIVE, default=32, show_default=True, metavar="M", help="Tokens fed after each prompt."
)
@click.option("--repeat", type=POSITIVE, default=5, show_default=True, metavar="R", help="Prompts, each a new one.")
@fast_mode_option
@json_option
def command(blob: Path, prompt_tokens: int, gen_tokens: int, repeat: int, mode: str, as_json: bool) -> None:
    """Measure how many tokens a second this host computes with BLOB.

    These are speeds of the simulator on this host, not of the NPU (see `npuc profile`). Every entry runs once before
    the clock starts; the medians of the repeats are shown, the slowest and the fastest.

    \b
    npuc bench model.npu --prompt-tokens 512 --gen-tokens 64
    npuc bench model.npu --mode exact --prompt-tokens 8 --gen-tokens 4 --repeat 3 --json
    """
    from npuc.bench import bench

    settle_mode(mode)
    with progress() as report:
        found = bench(blob, mode, prompt_tokens, gen_tokens, repeat, lambda line: report.say(f"note: {line}"), report)
    if as_json:
        click.echo(json.dumps(found.to_json()))
    else:
        for line in found.lines():
            click.echo(line)
