"""Vector instructions of an operation, loads and stores among them, as kernels of the library have them.

A bound counts what no formula can do without; this table counts what a kernel does.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import onnx_ir as ir

from npuc.bound.work import SPECIAL, VECTOR
from npuc.estimate.experts import Choice
from npuc.estimate.operations import Operation
from npuc.graph.nodes import attributes, dims
from npurt.abi.dtypes import DType
from npurt.target.model import Engine

Classes = tuple[str, ...]
WIDE = DType.F32.nbytes
"""Lanes of a program that reads sums of the matrix engine: the two products of a gated layer."""

# of each element where an operator is more than one instruction
EXPANDED: Mapping[str, Classes] = {
    "Gelu": (*("simple",) * 5, "special"),
    "Softplus": (*("simple",) * 4, "special", "special"),
    "HardSwish": ("simple",) * 4,
    "Pow": ("simple",),  # powers of a decoder are squares
    "Sigmoid": ("special",),
}
FREE = frozenset({"Cast", "CastLike", "Identity"})
"""Operators of a chain that are no instruction: results are rounded as they are stored."""


def vector_seconds(operation: Operation, engine: Engine, item: int) -> float:
    """One run over all elements, without launches. item: bytes of a float; 0.0 for what the vector engine has no part
    in. Attention: `npuc.estimate.attention`."""
    if operation.kind == "pair":
        chain = operation.nodes[len(operation.products) :]
        products = [node.outputs[0] for node in operation.products]
        extra = [
            value for value in _loaded(operation) if value not in {v for p in operation.products for v in p.inputs}
        ]
        cycles = sum(_cycles(engine, ("load",), value, WIDE) for value in products)
        cycles += sum(_cycles(engine, ("load",), value, item) for value in extra)
        cycles += sum(_cycles(engine, _classes(node), node.outputs[0], WIDE) for node in chain)
        cycles += _cycles(engine, ("store",), operation.last.outputs[0], item)
        return cycles / engine.units / engine.clock
    if operation.kind != "vector":
        return 0.0
    cycles = sum(_cycles(engine, ("load",), value, item) for value in _loaded(operation))
    for node in operation.nodes:
        cycles += _cycles(engine, _classes(node), _spread(node), item) * _part(node)
    cycles += sum(_cycles(engine, ("store",), value, item) for value in operation.outputs())
    return cycles / engine.units / engine.clock


def experts_seconds(choice: Choice, pairs: float, engine: Engine, item: int) -> float:
    """pairs: of an expert and a row. The hidden layer of f32 sums, stored as floats; then the weighted sum."""
    gated = len(choice.layers) == 3
    hidden = ("load", "special", *(("load", "simple", "simple") if gated else ("simple",)))
    cycles = _count(engine, hidden, pairs * choice.hidden, WIDE)
    cycles += _count(engine, ("store",), pairs * choice.hidden, item)
    if choice.row_by_row:
        cycles += _count(engine, ("load", "simple", "reduce"), pairs * choice.layers[-1][0], WIDE)
    else:
        cycles += _count(engine, ("simple",) * 3, pairs * choice.hidden, WIDE)  # the row's share, chosen and applied
    return cycles / engine.units / engine.clock


def count_seconds(engine: Engine, classes: Classes, elements: float, item: int) -> float:
    """Instructions of these classes on each of `elements`, in lanes of `item` bytes, by all units of the engine."""
    return _count(engine, classes, elements, item) / engine.units / engine.clock


def _classes(node: ir.Node) -> Classes:
    if node.op_type in FREE:
        return ()
    known = VECTOR.get(node.op_type) or EXPANDED.get(node.op_type)
    return known or (("special",) if node.op_type in SPECIAL else ("simple",))


def _spread(node: ir.Node) -> ir.Value:
    """The value whose elements the instructions of a node go over."""
    return _given(node.inputs[0]) if node.op_type in VECTOR else node.outputs[0]


def _part(node: ir.Node) -> float:
    """The share of the last axis that is computed."""
    if node.op_type != "Rotary":
        return 1.0
    return float(attributes(node)["rotary_dim"]) / dims(_given(node.inputs[0]))[-1]


def _loaded(operation: Operation) -> list[ir.Value]:
    """Operands that are read element by element: not single constants, which are part of an instruction."""
    return [v for v in operation.inputs() if v.shape is not None and (v.const_value is None or prod(dims(v)) > 1)]


def _cycles(engine: Engine, classes: Classes, value: ir.Value, item: int) -> float:
    return _count(engine, classes, prod(dims(value)), item)


def _count(engine: Engine, classes: Classes, elements: float, item: int) -> float:
    return sum(engine.cycles[name] for name in classes) * elements * item / engine.bytes_per_cycle


def _given(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value
