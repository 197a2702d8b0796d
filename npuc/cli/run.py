"""`npuc run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from npuc.cli.answering import AnsweringDevice
from npuc.cli.blobs import blob_for
from npuc.cli.options import (
    COMPILE_SECTION,
    compile_option_given,
    compile_options,
    fast_mode_option,
    json_option,
    keep_inputs,
    note,
    options_of,
    output_option,
    settle_mode,
)
from npuc.cli.progress import progress
from npuc.cli.sections import SectionedCommand

DEFAULT_MAX_NEW_TOKENS = 128


@click.command(
    "run", cls=SectionedCommand,
    sections={
        "Choosing tokens": (
            "max_new_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "stop",
        ),
        "Comparing with other programs": ("force_ids", "logits"),
        **COMPILE_SECTION,
    },
)  # fmt: skip
@click.argument("source", metavar="[BLOB|MODEL]", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--prompt", metavar="TEXT", help="The prompt as text (needs the extra npuc[chat]).")
@click.option("--chat", is_flag=True, help="The prompt is a message: put it through the model's chat template.")
@click.option("--system", metavar="TEXT", help="A system message in front of it, with --chat.")
@click.option("--prompt-ids", metavar="IDS", help="The prompt as token ids, such as '1 2 3'.")
@click.option(
    "--max-new-tokens", type=int, metavar="K",
    help=f"Most tokens of the answer.  [default: {DEFAULT_MAX_NEW_TOKENS}, or as many as --force-ids gives]",
)  # fmt: skip
@click.option("--temperature", type=float, default=0.0, show_default=True, help="0 takes the likeliest token.")
@click.option("--top-k", type=int, default=0, show_default=True, help="Draw from the k likeliest; 0: from all.")
@click.option("--top-p", type=float, default=1.0, show_default=True, help="Draw from the likeliest that reach p.")
@click.option("--min-p", type=float, default=0.0, show_default=True, help="Drop tokens below p times the likeliest.")
@click.option("--repetition-penalty", type=float, default=1.0, show_default=True, help="Above 1: fewer repetitions.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws; equal seeds give equal answers.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End the answer before this text. May be repeated.")
@click.option("--force-ids", metavar="IDS", help="Feed these ids instead of the chosen ones, such as '4 5 6'.")
@output_option(
    "--logits", metavar="F.npz",
    help="Write the logits: prompt [n, vocab] of every prompt position, step [k, vocab] after each fed token; float32.",
)  # fmt: skip
@fast_mode_option
@json_option
@compile_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: Path | None,
    prompt: str | None,
    prompt_ids: str | None,
    chat: bool,
    system: str | None,
    max_new_tokens: int | None,
    force_ids: str | None,
    stop: tuple[str, ...],
    logits: Path | None,
    mode: str,
    as_json: bool,
    **given: Any,
) -> None:
    """Answer a prompt with a language model.

    Without BLOB or MODEL the embedded model answers. A MODEL is compiled first, with the options of `npuc compile`.
    The answer goes to stdout as it comes; everything else goes to stderr.

    \b
    npuc run --prompt 'In the beginning' --temperature 0.8 --top-k 40
    npuc run model.npu --chat --prompt 'What is an NPU?'
    npuc run model.npu --prompt-ids '1 2 3' --max-new-tokens 16 --json
    """
    from npurt.llm import Request, Sampling
    from npurt.llm.answer import answer, parse_ids, prompt_of, result_json, save_logits, summary

    if (prompt is None) == (prompt_ids is None):
        raise click.UsageError("give the prompt either as --prompt TEXT or as --prompt-ids '1 2 3'")
    if (chat and prompt is None) or (system is not None and not chat):
        raise click.UsageError("--chat goes with --prompt TEXT, and --system with --chat")
    forced = tuple(parse_ids(force_ids, "--force-ids")) if force_ids is not None else ()
    if max_new_tokens is None:
        max_new_tokens = len(forced) or DEFAULT_MAX_NEW_TOKENS
    sampling = Sampling(
        given["temperature"], given["top_k"], given["top_p"], given["min_p"], given["repetition_penalty"], given["seed"]
    )
    request = Request(max_new_tokens, sampling, stop, forced, collect_logits=logits is not None)
    keep_inputs(logits, source)
    settle_mode(mode)
    with blob_for(source, lambda: options_of(given), given=compile_option_given(ctx)) as path:
        import npurt

        image = npurt.load(path)
        ids = prompt_of(image, prompt, prompt_ids, chat=chat, system=system)
        with progress() as report:
            device = npurt.open_device(image, mode, warn=lambda line: report.say(f"note: {line}"))
            seen = AnsweringDevice(device, report, len(ids), max_new_tokens if as_json else None)
            result = answer(image, seen, ids, request, out=None if as_json else sys.stdout)
    if logits is not None:
        from npuc.emit.atomic import atomic_file

        with atomic_file(logits) as file:
            save_logits(result, file)
    if as_json:
        click.echo(result_json(result))
    else:
        note(summary(result))
