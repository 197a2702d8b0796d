"""How a state changes in a run, by proof from the graph's structure: the class decides how the device keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from npuc.graph.edit import source_of
from npuc.graph.nodes import constant, producer
from npuc.graph.state_info import StateInfo
from npuc.graph.state_pairs import joined


@dataclass(frozen=True)
class StateClass:
    """Class of one state.

    kind: append: the next value is the value with new rows behind it; replace: any other new value; read_only: it
    keeps its value; write_only: nothing reads it; counter: it has the number of rows in the caches. row_axis: of an
    append state. rows: name of the value that holds the new rows; None where an attention operator makes them inside.
    why: the proof, one sentence. kept: rows of an append state that the graph keeps at most, it drops older ones; None
    for all. slots: rows of a buffer of a fixed size that holds an append state; None for one that grows.
    """

    id: str
    kind: Literal["append", "replace", "read_only", "write_only", "counter"]
    row_axis: int | None
    rows: str | None
    why: str
    kept: int | None = None
    slots: int | None = None


def classify(states: list[StateInfo], model: ir.Model) -> list[StateClass]:
    """The class of each state of a pure model, in the same order. Other readers of a state do not change its class."""
    inputs = {v.name: v for v in model.graph.inputs}
    outputs = {v.name: v for v in model.graph.outputs}
    return [_classify(s, inputs.get(s.input), outputs.get(s.output)) for s in states]


def _classify(state: StateInfo, before: ir.Value | None, after: ir.Value | None) -> StateClass:
    if after is None:
        return StateClass(state.id, "read_only", None, None, "no node assigns it")
    if before is None:
        return StateClass(state.id, "write_only", None, None, "no node reads it")
    if source_of(after) is before:
        return StateClass(state.id, "read_only", None, None, "its next value is its value")
    put = joined(after, before)
    if put is None:
        windowed = _windowed(state, after, before)
        if windowed is not None:
            return windowed
        return StateClass(
            state.id, "replace", None, None, f"{_reason(after, before)}, so each run gives a whole new value"
        )
    node, axis = put
    axis %= max(len(state.shape), 1)
    if axis != state.growing_axis:
        return StateClass(
            state.id, "replace", None, None, f"node {node.name} adds rows on axis {axis}, along which it does not grow"
        )
    if node.op_type == "Concat":
        rows = node.inputs[1]
        return StateClass(
            state.id,
            "append",
            axis,
            rows.name if rows else None,
            f"node {node.name} (Concat) puts {rows.name if rows else ''!r} behind it on axis {axis}",
        )
    return StateClass(
        state.id, "append", axis, None, f"node {node.name} ({node.op_type}) puts its new rows behind it on axis {axis}"
    )


def _windowed(state: StateInfo, after: ir.Value, before: ir.Value) -> StateClass | None:
    """The class of a cache that keeps its last rows: Slice(Concat(value or its last rows, new rows)), to the end."""
    outer = _last_rows(after)
    made = producer(outer[0], "Concat") if outer is not None else None
    if outer is None or made is None or len(made.inputs) != 2 or made.inputs[1] is None:
        return None
    axis, kept = outer[1] % max(len(state.shape), 1), outer[2]
    front, inner = source_of(made.inputs[0]), _last_rows(made.inputs[0])
    if inner is not None and inner[1] % max(len(state.shape), 1) == axis:
        front, kept = source_of(inner[0]), min(kept, inner[2])
    if front is not before or made.attributes["axis"].as_int() % len(state.shape) != axis or axis != state.growing_axis:
        return None
    rows = made.inputs[1].name
    why = f"node {made.name} (Concat) puts {rows!r} behind it on axis {axis}, and the last {kept} rows are kept"
    return StateClass(state.id, "append", axis, rows, why, kept=kept)


def _last_rows(value: ir.Value | None) -> tuple[ir.Value, int, int] | None:
    """(x, axis, count) of a value that is the last `count` rows of x, by a Slice from -count to the end."""
    node = producer(source_of(value), "Slice")
    if node is None or node.inputs[0] is None or len(node.inputs) < 4:
        return None
    bounds = [constant(v) for v in node.inputs[1:]]
    if any(b is None or b.size != 1 for b in bounds):
        return None
    start, end, axis, *step = (int(b.reshape(())) for b in bounds if b is not None)
    whole = start < 0 and end >= np.iinfo(np.int32).max and step in ([], [1])
    return (node.inputs[0], axis, -start) if whole else None


def _reason(after: ir.Value, before: ir.Value) -> str:
    """Why the next value is not the value with rows behind it."""
    made = source_of(after)
    node = made.producer() if made is not None else None
    if node is None:
        return "its next value is no result of a node"
    if node.op_type != "Concat":
        return f"its next value comes from node {node.name} ({node.op_type}), not from a Concat"
    places = [i for i, value in enumerate(node.inputs) if source_of(value) is before]
    if not places:
        return f"node {node.name} (Concat) does not take the value itself"
    if places == [0]:
        return f"node {node.name} (Concat) joins {len(node.inputs)} values"
    return f"node {node.name} (Concat) has the value as operand {places[0]}, not in front"
