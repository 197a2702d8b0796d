"""`npuc compile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from npuc.cli.options import compile_options, is_blob, json_option, keep_inputs, note, options_of, output_option
from npuc.cli.progress import progress


@click.command("compile")
@click.argument("model", type=click.Path(exists=True, path_type=Path))
@output_option("-o", "--output", metavar="BLOB", help="The file to write.")
@compile_options
@click.option(
    "--dump-after", type=(str, click.Path(file_okay=False, path_type=Path)), metavar="STEP DIR",
    help="Save the graph after a step, such as fold, or after `all`, as ONNX files.",
)  # fmt: skip
@output_option(
    "--report",
    "node_report",
    metavar="R.json",
    help="Write what became of every node of the model: engine, kernel, why.",
)  # fmt: skip
@click.option("--stop-after", metavar="STEP", help="Stop after a step of the graph; no blob is written.")
@json_option
def command(
    model: Path,
    output: Path | None,
    dump_after: tuple[str, Path] | None,
    node_report: Path | None,
    stop_after: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Compile MODEL into one blob.

    MODEL is an ONNX file, or an exported folder; a tokenizer beside the model goes into the blob. A decoder with a KV
    cache becomes the entries prefill, generate and head; any other graph becomes the entry main. The file appears only
    when all went well.

    \b
    npuc compile model.onnx -o model.npu
    npuc compile exported/ -o model.npu --max-prompt-len 512 --chunk 64 --capacities 256,640
    npuc compile graph.onnx -o graph.npu --dim batch=1 --precision f32
    npuc compile model.onnx --dump-after all stages/ --stop-after attention
    """
    if stop_after is None and output is None:
        raise click.UsageError("say where the blob goes: -o BLOB")
    if stop_after is not None and output is not None:
        raise click.UsageError("-o and --stop-after exclude each other: a stopped compilation writes no blob")
    if stop_after is not None and node_report is not None:
        raise click.UsageError("--report and --stop-after exclude each other: kernels are chosen after the last step")
    if is_blob(model):
        raise click.UsageError(f"{model} is compiled already: `npuc run` and `npuc exec` take it as it is")
    from npuc.driver import compile_model, compile_to_blob

    options = options_of(given, dump_after=dump_after, stop_after=stop_after)
    if output is None:
        with progress() as report:
            compile_model(model, options, report)
        return
    keep_inputs(output, model)
    keep_inputs(node_report, model)
    with progress() as report:
        summary = compile_to_blob(model, output, options, report, node_report)
    assert summary is not None, "only --stop-after ends without a blob"
    for line in summary.report:
        note(line)
    if as_json:
        click.echo(json.dumps({"blob": str(output), "blob_bytes": summary.blob_bytes, "report": summary.report,
                               "seconds": summary.seconds}))  # fmt: skip
    else:
        for line in summary.lines:
            click.echo(line)
