"""Elementwise nodes grouped so that one SHAVE run computes a whole chain.

A node joins the group of its consumers when they are all in one group and shapes agree: nothing is computed twice and
no intermediate is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from npuc import tile as t
from npuc.lower import views
from npuc.lower.context import Lowering, attribute, constant, static_shape, value_type
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.expression import ELEMENTWISE, Expression, Operand, Scalar, Step
from npuc.lower.narrow import GRIDS, WRAPPING, Width, width_of
from npuc.lower.storage import UnsupportedType
from npuc.tasks import Region
from npurt.abi.dtypes import DType

_CASTS = {"f": t.f32, "i": t.i32, "b": t.boolean}
_HALVES = {ir.DataType.FLOAT16: t.f16, ir.DataType.BFLOAT16: t.bf16}
_ATTRIBUTES = {
    "alpha": float, "beta": float, "fmod": int, "approximate": str, "direction": str, "detect_negative": int,
    "detect_positive": int,
}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Elementwise nodes in topological order; the last one makes the group's value."""

    nodes: tuple[ir.Node, ...]

    @property
    def output(self) -> ir.Value:
        return self.nodes[-1].outputs[0]


def is_elementwise(node: ir.Node, bound: frozenset[tuple[str, str]] = frozenset()) -> bool:
    """bound: operators (domain, name) that a kernel of the caller computes."""
    if (node.domain, node.op_type) in bound:
        return False
    return node.domain == "" and node.op_type in ELEMENTWISE and node.op_type != "Identity"


def group_nodes(
    nodes: Sequence[ir.Node], outputs: frozenset[ir.Value], bound: frozenset[tuple[str, str]] = frozenset()
) -> dict[ir.Node, Group]:
    """The group of each group's last node. Other members map to nothing: the walk skips them. bound: see above."""
    leader: dict[ir.Node, ir.Node] = {}
    for node in reversed(nodes):
        if not is_elementwise(node, bound):
            continue
        value = node.outputs[0]
        users = [use.node for use in value.uses()]
        leaders = {leader.get(user) for user in users}
        joins = (
            len(leaders) == 1 and None not in leaders and value not in outputs
            and static_shape(value) == static_shape(next(iter(leaders)).outputs[0])  # type: ignore[union-attr]
        )  # fmt: skip
        leader[node] = next(iter(leaders)) if joins else node  # type: ignore[assignment]
    members: dict[ir.Node, list[ir.Node]] = {}
    for node in nodes:
        if node in leader:
            members.setdefault(leader[node], []).append(node)
    return {last: Group(tuple(group)) for last, group in members.items()}


def members_of(groups: dict[ir.Node, Group]) -> frozenset[ir.Node]:
    return frozenset(node for group in groups.values() for node in group.nodes)


def lower_group(low: Lowering, group: Group) -> None:
    """One `map` call over the group's non-constant inputs, broadcast against the output."""
    expression, inputs = expression_of(low, group)
    last = group.nodes[-1]
    shape = static_shape(group.output)
    sources = [low.region(value) for value in inputs]
    order = _order(sources, shape)
    out = low.new(group.output, dtype=_wide(low, group.output), order=order)
    broadcast = [views.expand(region, shape) for region in sources]
    for merged in views.parts([*broadcast, out]):
        arrays = [*(views.narrowed(region) for region in merged[:-1]), merged[-1]]
        low.call(f"map{len(sources)}", arrays, last, fn=expression)
    low.at[group.output] = out


def _wide(low: Lowering, value: ir.Value) -> DType | None:
    """float32 for one number, whatever the precision: as a scale it may be too small for half precision."""
    one = math.prod(static_shape(value)) == 1 and low.storage.of(value_type(value)).is_float
    return DType.F32 if one else None


def expression_of(low: Lowering, group: Group) -> tuple[Expression, list[ir.Value]]:
    inputs: list[ir.Value] = []
    inside = {node.outputs[0] for node in group.nodes}
    for node in group.nodes:
        for value in node.inputs:
            if value is not None and value not in inside and _scalar(value) is None and value not in inputs:
                inputs.append(value)
    if not inputs:  # all operands are scalars: folding has left this to the device
        raise LoweringRefused([f"{describe(group.nodes[-1])}: all its operands are constants"])
    places: dict[ir.Value, int] = {value: i for i, value in enumerate(inputs)}
    steps: list[Step] = []
    for node in group.nodes:
        args: list[Operand] = []
        for value in node.inputs:
            if value is None:
                args.append(None)
                continue
            scalar = None if value in places else _scalar(value)
            args.append(places[value] if scalar is None else scalar)
        steps.append(Step(node.op_type, tuple(args), _attributes(low, node)))
        width = width_of(node.outputs[0].dtype)
        if width is not None and _may_wrap(node, width):
            last = len(inputs) + len(steps) - 1
            steps.append(Step("Wrap", (last,), (("bits", width.bits), ("signed", width.signed))))
        places[node.outputs[0]] = len(inputs) + len(steps) - 1
    return Expression(len(inputs), tuple(steps)), inputs


def _may_wrap(node: ir.Node, width: Width) -> bool:
    """Whether the integer result of a node may need more bits than its type has."""
    if node.op_type != "Cast":
        return node.op_type in WRAPPING
    source = node.inputs[0].dtype if node.inputs[0] is not None else None
    from_ = width_of(source)
    if source == ir.DataType.BOOL:
        return False
    return from_ is None or from_.bits > width.bits or from_.signed != width.signed


def _attributes(low: Lowering, node: ir.Node) -> tuple[tuple[str, Any], ...]:
    if node.op_type == "Cast":
        return _cast(low, node)
    given = {name: kind for name, kind in _ATTRIBUTES.items() if name in node.attributes}
    return tuple((name, kind(attribute(node, name, None))) for name, kind in given.items())


def _cast(low: Lowering, node: ir.Node) -> tuple[tuple[str, Any], ...]:
    """The register type, and the grid of a type that memory does not round to."""
    kind = ir.DataType(attribute(node, "to", 0))
    try:
        stored = low.storage.of(kind)
    except UnsupportedType as error:
        raise LoweringRefused([f"{describe(node)}: {error}"]) from error
    if kind.name in GRIDS:
        return (("to", t.f32), ("grid", kind.name), ("saturate", int(attribute(node, "saturate", 1))))
    if stored is t.f32 and kind in _HALVES:  # stored as f32, and still rounded as the model says
        return (("to", _HALVES[kind]),)
    return (("to", _CASTS["f" if stored.is_float else "b" if kind == ir.DataType.BOOL else "i"]),)


def _scalar(value: ir.Value) -> Scalar | None:
    """A constant of one element as an immediate operand."""
    tensor = constant(value)
    if tensor is None:
        return None
    array = tensor.numpy()
    if array.size != 1 or value.shape is None:
        return None
    item = array.reshape(-1)[0]
    kind = value_type(value)
    if kind == ir.DataType.BOOL:
        return Scalar(bool(item))
    if kind.is_floating_point():
        return Scalar(float(item))
    return Scalar(int(item))


def _order(sources: Sequence[Region], shape: tuple[int, ...]) -> list[int] | None:
    """Memory order of the largest operand, so that chains keep one layout; None for row-major."""
    full = [r for r in sources if r.shape == shape and 0 not in r.stride]
    if not full:
        return None
    strides = full[0].stride
    return sorted(range(len(shape)), key=lambda axis: (-abs(strides[axis]), axis))
