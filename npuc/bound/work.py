"""The work of each canonical node that tiling cannot change: multiplications, vector instructions, engine changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import onnx_ir as ir

from npuc.graph.nodes import attributes, dims
from npurt.abi.dtypes import DType
from npurt.errors import TargetError
from npurt.target.model import Engine, MatrixRules, Target

Classes = tuple[str, ...]

MOVES = frozenset({
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Concat", "Slice", "Split", "Expand", "Gather",
    "GatherND", "GatherElements", "ScatterND", "Pad", "Tile", "Identity", "Cast", "CastLike", "StepRows", "StepMask",
    "LastRows", "StepBias", "PastRows", "ValidRows", "DequantizedRows", "DequantizedWeight",
    "Constant", "ConstantOfShape", "Shape", "Range", "Trilu",
})  # fmt: skip
"""Operators that only move data, convert it on the way, or name positions: they may cost nothing."""

SPECIAL = frozenset({
    "Exp", "Log", "Sqrt", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Reciprocal", "Div", "Pow", "Gelu", "Softplus",
    "HardSwish",
})  # fmt: skip
"""Elementwise operators of one function each; the others count as one simple instruction."""

# instructions per element of the first input that the formula cannot do without
VECTOR: Mapping[str, Classes] = {
    "RMSNorm": ("simple", "reduce", "simple", "simple"),  # x * x, sum, times the root, times the weight
    "LayerNormalization": ("reduce", "simple", "simple", "reduce", "simple", "simple", "simple"),
    "Rotary": ("simple", "simple", "simple"),  # two products and a sum
    "Softmax": ("reduce", "simple", "special", "reduce", "simple"),
    **dict.fromkeys(
        (f"Reduce{kind}" for kind in ("Sum", "Mean", "Max", "Min", "Prod", "SumSquare", "L2")), ("reduce",)
    ),
    **dict.fromkeys(("ArgMax", "ArgMin", "CumSum"), ("reduce",)),
}
ATTENTION_SCORE: Classes = ("reduce", "simple", "special", "reduce")  # maximum, difference, exp, sum
MIXING = frozenset({"RMSNorm", "LayerNormalization", "Softmax", "MatMul", "Gemm"})
"""Operators whose every output needs all of their input's last axis."""


@dataclass(frozen=True)
class NodeWork:
    """Seconds of one node. matrix, vector: on each engine at the full rate.

    engine: "matrix", "vector", "both" (attention and experts: matrix, vector, matrix) or "" for a node that may cost
    nothing.
    gate: its first result needs everything that comes before it (it mixes the last axis, and has one row).
    """

    matrix: float
    vector: float
    engine: str
    gate: bool


@dataclass(frozen=True)
class Costs:
    """Prices on one target. item: bytes of a float; mac_type: its label, such as "f16"."""

    matrix: Engine
    vector: Engine
    rules: MatrixRules
    item: int
    mac_type: str

    @classmethod
    def of(cls, target: Target, floats: DType) -> Costs:
        matrix = target.engine_of("matrix")
        if floats.label not in matrix.macs_per_cycle:
            raise TargetError(
                f"{target.name} multiplies no {floats.label}; it takes {', '.join(matrix.macs_per_cycle)}"
            )
        return cls(matrix, target.engine_of("vector"), target.matrix, floats.nbytes, floats.label)

    def macs(self, rows: int, count: float) -> float:
        """Seconds of `count` MACs whose rows come in groups of `rows`; the engine computes whole steps of rows."""
        step = self.rules.row_multiple
        padded = -(-rows // step) * step / rows if rows else 0.0
        return count * padded / self.matrix.macs_per_cycle[self.mac_type] / self.matrix.clock

    def elements(self, count: float, classes: Classes) -> float:
        """Seconds of these instructions on each of `count` elements."""
        engine = self.vector
        cycles = sum(engine.cycles[name] for name in classes)
        return cycles * count * self.item / engine.bytes_per_cycle / engine.units / engine.clock


@dataclass(frozen=True)
class Demand:
    """What one node asks for on any machine.

    macs: (rows of a product, MACs). elements: (how many, classes of the instructions on each). attention: (heads,
    groups, rows, depth of a key, depth of a value, window, 0 for none), whose work depends on the past. engine, gate:
    as in `NodeWork`.
    """

    macs: tuple[int, int] | None = None
    elements: tuple[int, Classes] | None = None
    attention: tuple[int, int, int, int, int, int] | None = None
    engine: str = ""
    gate: bool = False

    def work(self, costs: Costs, n_past: int) -> NodeWork:
        """n_past: rows of the cache that are valid."""
        if self.attention is not None:
            return self._attention(self.attention, costs, n_past)
        matrix = costs.macs(*self.macs) if self.macs is not None else 0.0
        vector = costs.elements(*self.elements) if self.elements is not None else 0.0
        return NodeWork(matrix, vector, self.engine, self.gate)

    def _attention(self, extents: tuple[int, int, int, int, int, int], costs: Costs, n_past: int) -> NodeWork:
        """Row i sees the past and the new rows up to itself, inside the window if there is one."""
        heads, groups, rows, depth, value_depth, window = extents
        pairs = heads * sum(min(n_past + i + 1, window or n_past + rows) for i in range(rows))
        matrix = costs.macs(heads // groups * rows, pairs * (depth + value_depth))
        vector = costs.elements(pairs, ATTENTION_SCORE) + costs.elements(heads * rows * value_depth, ("simple",))
        return NodeWork(matrix, vector, self.engine, self.gate)

    def to_json(self) -> dict[str, Any]:
        return {
            "macs": list(self.macs or ()), "elements": list(self.elements or ()),
            "attention": list(self.attention or ()), "engine": self.engine, "gate": self.gate,
        }  # fmt: skip

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Demand:
        """row: as `to_json` gives it, or without what is empty."""
        elements = row.get("elements")
        return cls(
            tuple(row["macs"]) if row.get("macs") else None,
            (elements[0], tuple(elements[1])) if elements else None,
            tuple(row["attention"]) if row.get("attention") else None, row.get("engine", ""), row.get("gate", False),
        )  # fmt: skip


def node_work(node: ir.Node, costs: Costs, n_past: int) -> NodeWork:
    """n_past: rows of the cache that are valid."""
    return demand_of(node).work(costs, n_past)


def demand_of(node: ir.Node) -> Demand:
    rule = _MATRIX.get(node.op_type)
    if rule is not None:
        return rule(node)
    if node.op_type in MOVES or _folds(node):
        return Demand()
    classes = VECTOR.get(node.op_type) or (("special",) if node.op_type in SPECIAL else ("simple",))
    shape = _shape(node.inputs[0]) if node.op_type in VECTOR else _shape(node.outputs[0])
    count = prod(shape)
    if node.op_type == "Rotary":
        count = count // shape[-1] * attributes(node)["rotary_dim"]
    gate = node.op_type in MIXING and prod(shape[:-1]) == 1
    return Demand(elements=(count, classes), engine="vector", gate=gate)


def _matmul(node: ir.Node) -> Demand:
    a, b, c = _shape(node.inputs[0]), _shape(node.inputs[1]), _shape(node.outputs[0])
    turned = node.op_type == "Gemm" and bool(attributes(node).get("transA", 0))
    depth = a[0] if turned else a[-1]
    # rows of one product: all of them where the second operand is one matrix
    rows = prod(c[:-1]) if len(b) <= 2 else (c[-2] if len(c) > 1 else 1)
    return Demand(macs=(rows, prod(c) * depth), engine="matrix", gate=prod(c[:-1]) == 1)


def _attention(node: ir.Node) -> Demand:
    _, heads, rows, depth = _shape(node.inputs[0])
    groups, value_depth = _shape(node.inputs[1])[1], _shape(node.inputs[2])[3]
    window = int(attributes(node).get("window", 0))
    return Demand(attention=(heads, groups, rows, depth, value_depth, window), engine="both")


def _mixture(node: ir.Node) -> Demand:
    """Each row through the experts that it chooses: their products, and the hidden layer between them."""
    (_, depth, width), columns, chosen = _shape(node.inputs[3]), _shape(node.inputs[5])[1], _shape(node.inputs[1])[-1]
    pairs = prod(_shape(node.inputs[0])[:-1]) * chosen
    layers = 2 if attributes(node).get("gated", 1) else 1
    macs = pairs * depth * (layers * width + columns)
    hidden = (pairs * depth, ("special", "simple", "simple"))
    return Demand(macs=(pairs, macs), elements=hidden, engine="both", gate=pairs == chosen)


_MATRIX: Mapping[str, Callable[[ir.Node], Demand]] = {
    "MatMul": _matmul,
    "Gemm": _matmul,
    "Attention": _attention,
    "MoE": _mixture,
}


def _folds(node: ir.Node) -> bool:
    """Whether the matrix engine can do it on the way out: a constant added to or multiplied with a product."""
    if node.op_type not in ("Add", "Mul", "Clip") or not node.inputs:
        return False
    values = [value for value in node.inputs if value is not None and value.const_value is None]
    maker = values[0].producer() if len(values) == 1 else None
    return maker is not None and maker.op_type in ("MatMul", "Gemm")


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    assert value is not None
    return dims(value)
