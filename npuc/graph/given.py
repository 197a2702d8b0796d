"""Inputs that say how the graph works and not what it works on: shapes, axes, counts. A static program has them as
constants, so whoever compiles gives their values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from npuc.graph.bodies import write_out_bodies
from npuc.graph.branches import flatten
from npuc.graph.edit import cloned
from npuc.graph.nodes import SHAPE_OPERANDS
from npuc.graph.options import OptionError

_ALSO: Mapping[str, tuple[int, ...]] = {"Dropout": (1, 2), "If": (0,), "Loop": (0, 1), "Pad": (1, 2, 3)}
"""Operands that must be constants besides SHAPE_OPERANDS: what normalisation and lowering ask for."""


def deciding_inputs(model: ir.Model, *, llm: bool | None = None) -> list[str]:
    """Names of the graph inputs that decide shapes or axes, in their order; the model stays as it is."""
    graph = cloned(model)
    flatten(graph)
    write_out_bodies(graph, llm=llm)
    found: set[ir.Value] = set()
    stack: list[ir.Value] = []
    for node in graph.graph.all_nodes():
        if node.domain == "":
            places = (*SHAPE_OPERANDS.get(node.op_type, ()), *_ALSO.get(node.op_type, ()))
            stack.extend(v for i, v in enumerate(node.inputs) if i in places and v is not None)
    while stack:
        value = stack.pop()
        if value in found:
            continue
        found.add(value)
        maker = value.producer()
        if maker is not None and maker.op_type not in ("Shape", "Size"):
            stack.extend(v for v in maker.inputs if v is not None)
    return [value.name or "" for value in graph.graph.inputs if value in found]


def give_inputs(model: ir.Model, values: Mapping[str, np.ndarray]) -> None:
    """These graph inputs become constants, in place. Raises OptionError for a name, type or shape that does not fit."""
    inputs = {value.name: value for value in model.graph.inputs}
    unknown = [name for name in values if name not in inputs]
    if unknown:
        there = ", ".join(str(name) for name in inputs) or "none"
        raise OptionError(f"--value {unknown[0]}: the model has no such input; its inputs are {there}")
    for name, array in values.items():
        value = inputs[name]
        if value.dtype is None:
            raise OptionError(f"--value {name}: the input has no element type")
        shape = value.shape
        if shape is not None and shape.is_static() and array.ndim == 1 and array.size == math.prod(shape.numpy()):
            array = array.reshape(shape.numpy())  # a command line gives a row of numbers
        if shape is not None and not _fits(shape, array.shape):
            raise OptionError(f"--value {name}: shape {list(array.shape)} was given, {list(shape)} is due")
        model.graph.inputs.remove(value)
        value.const_value = ir.Tensor(array.astype(value.dtype.numpy()), name=name)
        value.shape = ir.Shape(array.shape)
        model.graph.register_initializer(value)


def _fits(declared: ir.ShapeProtocol, given: tuple[int, ...]) -> bool:
    """Whether a shape is one that the model declares; an open dimension takes any extent."""
    pairs = zip(declared, given, strict=False)
    return len(declared) == len(given) and all(d == n or not isinstance(d, int) for d, n in pairs)
