"""`npuc check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuc.cli.errors import DIFFERENT
from npuc.cli.options import (
    COMPILE_NAMES,
    COMPILE_SECTION,
    compile_options,
    json_option,
    mode_option,
    options_of,
    settle_mode,
)
from npuc.cli.progress import progress
from npuc.cli.sections import SectionedCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

IN_BLOB = tuple(name for name in COMPILE_NAMES if name not in ("dims", "values", "state_rows"))


@click.command("check", cls=SectionedCommand, sections=COMPILE_SECTION)
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@click.argument("blob", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--input", "input_", metavar="IN.npz", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inputs by the names of the graph, which is then compiled as a plain one.  [default: seeded]",
)  # fmt: skip
@click.option("--prompt", metavar="TEXT", help="The prompt as text (needs the extra npuc[chat]).")
@click.option("--prompt-ids", metavar="IDS", help="The prompt as token ids, such as '1 2 3'.  [default: seeded]")
@click.option(
    "--tokens", type=click.IntRange(min=0), default=4, show_default=True, metavar="K",
    help="Greedy tokens fed after the prompt.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="Compare steps and node groups even where the result agrees.")
@click.option("--rtol", type=click.FloatRange(min=0), metavar="R", help="Error allowed for each value, relative.")
@click.option("--atol", type=click.FloatRange(min=0), metavar="A", help="Error allowed for each value, absolute.")
@mode_option
@json_option
@compile_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: Path,
    blob: Path | None,
    input_: Path | None,
    prompt: str | None,
    prompt_ids: str | None,
    tokens: int,
    everything: bool,
    rtol: float | None,
    atol: float | None,
    mode: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Compare MODEL in onnxruntime with its program on the device, or with BLOB, which was compiled from it.

    Where the results differ, the first step of the graph, or else the first group of nodes, that causes it is named,
    with the exporter's names of the nodes. Exit code 0: all is within tolerance, 1: something diverges.

    \b
    npuc check exported/ --precision f32
    npuc check exported/ model.npu --prompt-ids '1 2 3' --tokens 8
    npuc check graph.onnx --input in.npz --rtol 1e-4 --atol 1e-5
    """
    if sum(value is not None for value in (input_, prompt, prompt_ids)) > 1:
        raise click.UsageError("--input, --prompt and --prompt-ids exclude each other")
    if given["values"]:
        raise click.UsageError("--value belongs to compile and exec: here onnxruntime runs the model as it is")
    if blob is not None:
        _refuse_given(ctx, blob)
    from npuc.compare import Request, check

    inputs = None if input_ is None else _inputs(model, input_, given)
    options = options_of(given, llm=False if input_ is not None else None)
    ids = _prompt(prompt, prompt_ids)
    settle_mode(mode)
    with progress() as report:
        result = check(
            Request(
                model, options, blob, inputs, ids, tokens, rtol, atol, everything, mode,
                lambda line: report.say(f"note: {line}"), report,
            )
        )  # fmt: skip
    if as_json:
        click.echo(json.dumps(result.to_json()))
    else:
        for line in result.lines():
            click.echo(line)
    if not result.agrees:
        raise click.exceptions.Exit(DIFFERENT)


def _refuse_given(ctx: click.Context, blob: Path) -> None:
    """A blob says itself how it was compiled."""
    commandline = click.core.ParameterSource.COMMANDLINE
    words = [f"--{name.replace('_', '-')}" for name in IN_BLOB if ctx.get_parameter_source(name) is commandline]
    if words:
        raise click.UsageError(f"{', '.join(words)}: {blob} is compiled already, its own options are used")


def _inputs(model: Path, input_: Path, given: dict[str, Any]) -> Mapping[str, NDArray[np.generic]]:
    """The tensors of a file; open dimensions of the model take their values from them, unless --dim says otherwise."""
    from npuc.cli.exec import dims_of, read_tensors

    tensors = read_tensors(input_)
    given["dims"] = (*dims_of(model, tensors).items(), *given["dims"])
    return tensors


def _prompt(text: str | None, ids: str | None) -> list[int] | str | None:
    if ids is None:
        return text
    from npurt.llm.answer import parse_ids

    return parse_ids(ids, "--prompt-ids")
