"""Mixtures of experts: TopK, and npuc.MoE as one kernel whose form is chosen by what it loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc import tile as t
from npuc.graph.experts.form import KINDS
from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, ints, static_shape
from npuc.lower.errors import LoweringRefused, describe
from npuc.tasks import Region
from npurt.abi.dtypes import DType

_ROOT_TWO_OVER_PI = 0.7978845608028654


def _gelu_tanh(x: t.Tile) -> t.Tile:
    return x * 0.5 * (1.0 + t.tanh(_ROOT_TWO_OVER_PI * (x + 0.044715 * x * x * x)))


_FUNCTIONS: dict[str, Callable[[t.Tile, float], t.Tile]] = {
    "silu": lambda x, alpha: x * t.sigmoid(x if alpha == 1.0 else x * alpha),
    "gelu": lambda x, _: x * 0.5 * (1.0 + t.erf(x * 0.7071067811865476)),
    "gelu_tanh": lambda x, _: _gelu_tanh(x),
    "relu": lambda x, _: t.maximum(x, 0.0),
    "identity": lambda x, _: x,
}


@dataclass(frozen=True)
class Activation:
    """The hidden layer of an expert: `npuc.graph.experts.form.Activation` on tiles."""

    kind: str
    alpha: float
    limit: float
    beta: float

    def __call__(self, gate: t.Tile, up: t.Tile | None) -> t.Tile:
        if self.limit:
            gate = t.minimum(gate, self.limit)
        result = _FUNCTIONS[self.kind](gate, self.alpha)
        if up is None:
            return result
        if self.limit:
            up = t.minimum(t.maximum(up, -self.limit), self.limit)
        return result * (up + self.beta if self.beta else up)


def mixture(low: Lowering, node: ir.Node) -> None:
    """npuc.MoE. Where the rows choose fewer experts than there are, theirs alone are loaded, row by row; else every
    expert runs over all rows, skipped on the device where it is likely enough that no row has chosen it."""
    x, indices, weights = (_matrix(low, node, low.region(value)) for value in node.inputs[:3])
    gate, up, down = node.inputs[3:6]
    out = low.at[node.outputs[0]] = low.new(node.outputs[0])
    matrix = views.as_matrix(out)
    assert matrix is not None
    stacks = [low.region(gate), low.region(up) if attribute(node, "gated", 1) else None, low.region(down)]
    biases = [_bias(low, value) for value in node.inputs[6:9]]
    activation = Activation(
        KINDS[int(attribute(node, "kind", 0))],
        *(float(attribute(node, name, default)) for name, default in (("alpha", 1.0), ("limit", 0.0), ("beta", 0.0))),
    )
    arrays = [x, indices, weights, *stacks, *biases, matrix]
    rows, k, experts = x.shape[0], indices.shape[1], static_shape(_given(gate))[0]
    if rows * k < experts:
        low.call("moe_chosen", arrays, node, activation=activation)
        return
    cut = low.ids_checked and rows > 1  # a last chunk may have few valid rows
    idle = experts * (1.0 - k / experts) ** rows  # experts without a row, if rows choose evenly
    low.call("moe_all", arrays, node, activation=activation, skip=cut or idle >= 0.5, cut=cut)


def _given(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value


def _matrix(low: Lowering, node: ir.Node, region: Region) -> Region:
    found = views.as_matrix(region)
    if found is None:
        found = views.as_matrix(low.copied(region, node))
    assert found is not None
    return found


def _bias(low: Lowering, value: ir.Value | None) -> Region | None:
    """A bias in f32 whatever the precision, None where it is all zeros."""
    tensor = constant(value)
    assert tensor is not None, "parameters are constants"
    array = np.asarray(tensor.numpy())
    if not array.any():
        return None
    return low.consts.array(array.astype(np.float32), DType.F32)


def topk(low: Lowering, node: ir.Node) -> None:
    """TopK of the largest along the last axis, in falling order."""
    source = low.region(node.inputs[0])
    axis = int(attribute(node, "axis", -1)) % source.rank
    if axis != source.rank - 1 or not attribute(node, "largest", 1) or ints(node, 1) is None:
        raise LoweringRefused([f"{describe(node)}: only the largest along the last axis are found"])
    outputs: list[Region | None] = []
    for value in node.outputs:
        if not (value.uses() or value.is_graph_output()):
            outputs.append(None)
            continue
        low.at[value] = low.new(value)
        outputs.append(views.as_matrix(low.at[value]))
    low.call("topk", (_matrix(low, node, source), *outputs), node)


RULES = {("npuc", "MoE"): mixture, ("", "TopK"): topk}
