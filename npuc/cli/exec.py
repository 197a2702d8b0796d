"""`npuc exec`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuc.cli.blobs import blob_for
from npuc.cli.options import (
    COMPILE_SECTION,
    compile_option_given,
    compile_options,
    is_blob,
    keep_inputs,
    mode_option,
    options_of,
    output_option,
    settle_mode,
)
from npuc.cli.progress import progress
from npuc.cli.sections import SectionedCommand

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Tensors = Mapping[str, NDArray[np.generic]]


@click.command("exec", cls=SectionedCommand, sections=COMPILE_SECTION)
@click.argument("source", metavar="[BLOB|MODEL]", required=False, type=click.Path(exists=True, path_type=Path))
@click.option(
    "--input", "input_", required=True, metavar="IN.npz", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The inputs, by the names of the graph.",
)  # fmt: skip
@output_option("--output", metavar="OUT.npz", help="The file to write: the outputs, by name.", required=True)
@click.option("--entry", default="main", show_default=True, help="The entry to run.")
@click.option("--n-past", type=click.IntRange(min=0), default=0, help="Valid cache rows before the run.")
@click.option("--n-new", type=click.IntRange(min=1), help="Valid rows of the input.  [default: all]")
@mode_option
@compile_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    source: Path | None,
    input_: Path,
    output: Path,
    entry: str,
    n_past: int,
    n_new: int | None,
    mode: str,
    **given: Any,
) -> None:
    """Run any graph once, on tensors from a file.

    A MODEL is compiled first, as a plain graph: open dimensions, shapes and axes take their values from the inputs.
    States start from their initial values. Without BLOB or MODEL it is the embedded model's blob, and --entry is one
    of its entries, such as prefill.

    \b
    npuc exec graph.onnx --input in.npz --output out.npz --precision f32
    """
    keep_inputs(output, source, input_)
    settle_mode(mode)
    tensors = read_tensors(input_)
    is_model = source is not None and not is_blob(source)
    values: dict[str, NDArray[np.generic]] = {}
    if is_model:
        assert source is not None
        given["dims"] = (*dims_of(source, tensors).items(), *given["dims"])  # a given --dim wins
        values = deciding_values(source, tensors)
        tensors = {name: tensor for name, tensor in tensors.items() if name not in values}
    more = {"llm": False, "values": values} if is_model else {}
    with blob_for(source, lambda: options_of(given, **more), given=compile_option_given(ctx)) as path:
        import npurt

        with progress() as report:
            device = npurt.open_device(npurt.load(path), mode, warn=lambda line: report.say(f"note: {line}"))
            report(f"running {entry}")
            results = device.run(entry, tensors, n_past=n_past, n_new=n_new)
    write_tensors(output, results)


def read_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """All arrays of an .npz file, by name. Errors: click.UsageError where it is no such file."""
    import zipfile
    import zlib

    import numpy as np

    # what NumPy and zipfile raise for damaged, encrypted, foreign or absurdly large content
    unreadable = (ValueError, EOFError, RuntimeError, MemoryError, KeyError, zlib.error, zipfile.BadZipFile)
    try:
        content = np.load(path, allow_pickle=False)
        if not isinstance(content, np.lib.npyio.NpzFile):
            raise click.UsageError(f"{path} holds one array without a name: give an .npz file")
        with content:
            tensors = {name: content[name] for name in content.files}
    except unreadable as error:
        raise click.UsageError(f"{path} is no .npz file of numbers: {error}") from error
    for name, tensor in tensors.items():
        if not isinstance(tensor, np.ndarray):  # NumPy hands out members that are no arrays as bytes
            raise click.UsageError(f"{path} is no .npz file of numbers: its member {name!r} is no array")
    return tensors


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Writes an .npz file whole or not at all."""
    import numpy as np

    from npuc.emit.atomic import atomic_file

    with atomic_file(path) as file:
        np.savez(file, **tensors)  # type: ignore[arg-type]  # NumPy's stub takes the names for its own options


def deciding_values(model: Path, tensors: Tensors) -> dict[str, NDArray[np.generic]]:
    """The given inputs that decide shapes or axes: the program has them as constants. ModelRefused as for `dims_of`."""
    from npuc.frontend import load
    from npuc.graph.given import deciding_inputs

    return {name: tensors[name] for name in deciding_inputs(load(model).model, llm=False) if name in tensors}


def dims_of(model: Path, tensors: Tensors) -> dict[str, int]:
    """Values of the model's open dimensions, as the shapes of the given inputs have them.

    Errors: click.UsageError where two inputs disagree, or where no tensor has the name of an input; ModelRefused where
    the model cannot be read.
    """
    from npuc.frontend import load

    inputs = load(model).model.graph.inputs
    names = [value.name or "" for value in inputs]
    if tensors and names and not any(name in tensors for name in names):
        raise click.UsageError(f"the given tensors are {', '.join(tensors)}; the graph's inputs are {', '.join(names)}")
    found: dict[str, tuple[int, str]] = {}
    for value in inputs:
        name = value.name or ""
        if value.shape is None or name not in tensors or len(value.shape) != tensors[name].ndim:
            continue
        for place, dim in enumerate(value.shape):
            symbol = getattr(dim, "value", None)
            if not isinstance(symbol, str):
                continue
            size = tensors[name].shape[place]
            known, where = found.setdefault(symbol, (size, name))
            if known != size:
                raise click.UsageError(f"dimension {symbol} is {known} in input {where} and {size} in input {name}")
    return {symbol: size for symbol, (size, _) in found.items()}
