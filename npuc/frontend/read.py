"""Reads a model file into an onnx-ir model."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import onnx
import onnx_ir as ir

from npuc.frontend import wire
from npuc.frontend.errors import ModelRefused, Problems
from npuc.frontend.external import bind_external
from npuc.frontend.locate import find_assets, find_model
from npuc.frontend.model import LoadedModel
from npuc.frontend.names import check_names
from npuc.frontend.order import ordered
from npuc.frontend.weights import check_weights, drop_empty


def load_model(path: str | PathLike[str], *, values: bool = True) -> LoadedModel:
    """Reads an ONNX file, or the model of a folder. Raises ModelRefused with all faults of the file at once.

    values: False lets weights be without data, in a missing file or in the model itself; `LoadedModel.absent` names
    them.

    Dimensions that an exporter wrote as text ("16") become numbers, and initializers that are also listed as inputs
    (a default that a caller might replace) become plain constants. Nodes are put into an order that runs, if there is
    one.
    """
    named = Path(path)
    model_file = find_model(named)
    source = model_file.name
    model = _converted(_parse(model_file, source), source)
    problems = Problems()
    without = bind_external(model, model_file, problems, values=values)
    if not values:
        without |= drop_empty(model, problems)
    problems.refuse(source)
    _finish(model, source)
    assets = find_assets(named, model_file)
    name = named.resolve().name if named.is_dir() else model_file.stem
    return LoadedModel(model, assets, name, source, frozenset(without))


def load_proto(proto: onnx.ModelProto, name: str = "model") -> LoadedModel:
    """A model that is in memory, weights inside. name: for messages. Raises ModelRefused as `load_model` does."""
    model = _converted(proto, name)
    _finish(model, name)
    return LoadedModel(model, {}, name, name)


def _converted(proto: onnx.ModelProto, source: str) -> ir.Model:
    problems = Problems()
    check_names(proto, problems)
    problems.refuse(source)
    try:
        with _quiet():
            return ir.serde.deserialize_model(proto)
    except Exception as error:  # the converter has no error class of its own for what a file can do to it
        raise ModelRefused([f"not a valid model: {_root(error)}"], source) from error


def _finish(model: ir.Model, source: str) -> None:
    """What `load_model` promises of every model, in place."""
    problems = Problems()
    check_weights(model, problems)
    problems.refuse(source)
    _plain_dims(model)
    _plain_inputs(model)
    nodes, stuck = ordered(model.graph)
    if not stuck and nodes != list(model.graph):
        model.graph.sort()


def _parse(file: Path, source: str) -> onnx.ModelProto:
    size = file.stat().st_size
    if size > wire.MAX_FILE_BYTES:
        raise ModelRefused(
            [f"{size} bytes; a model file ends at 2 GiB, larger weights belong in external data"], source
        )
    if size == 0:
        raise ModelRefused(["the file is empty"], source)
    proto = onnx.ModelProto()
    with (
        file.open("rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
        memoryview(data) as view,
    ):
        said = wire.fault(view)
        if said:
            raise ModelRefused([said], source)
        try:
            proto.ParseFromString(view)
        except Exception as error:  # protobuf's own DecodeError, which has no public home with types
            raise ModelRefused(["damaged: the graph inside cannot be read"], source) from error
    return proto


def _plain_dims(model: ir.Model) -> None:
    for value in (*model.graph.inputs, *model.graph.outputs):
        if value.shape is None:
            continue
        dims = [d.value if isinstance(d, ir.SymbolicDim) else d for d in value.shape]
        if any(isinstance(d, str) and d.isdecimal() for d in dims):
            value.shape = ir.Shape([int(d) if isinstance(d, str) and d.isdecimal() else d for d in dims])


def _plain_inputs(model: ir.Model) -> None:
    graph = model.graph
    given = [v for v in graph.inputs if v.name in graph.initializers]
    for value in given:
        graph.inputs.remove(value)


def _root(error: BaseException) -> str:
    """The first line of the innermost cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the converter's warnings about faults from the terminal: check_model names them."""
    logger = logging.getLogger("onnx_ir.serde")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
