"""How a state changes in a run, by proof from the graph's structure: the class decides how the device keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from npuc.graph.edit import source_of
from npuc.graph.state_info import StateInfo
from npuc.graph.state_pairs import joined
from npuc.graph.state_window import last_rows


@dataclass(frozen=True)
class StateClass:
    """Class of one state.

    kind: append: the next value is the value with new rows behind it; replace: any other new value; read_only: it
    keeps its value; write_only: nothing reads it; counter: it has the number of rows in the caches. row_axis: of an
    append state, and of a replace state that is a window: the last `kept` rows of the value named `rows`. rows: of an
    append state the name of the value that holds the new rows; None where an attention operator makes them inside.
    why: the proof, one sentence. kept: rows of an append state that the graph keeps at most, it drops older ones; None
    for all. slots: rows of a buffer of a fixed size that holds an append state; None for one that grows. circular:
    whether token i goes to slot i modulo the slots, so that the buffer never is full.
    """

    id: str
    kind: Literal["append", "replace", "read_only", "write_only", "counter"]
    row_axis: int | None
    rows: str | None
    why: str
    kept: int | None = None
    slots: int | None = None
    circular: bool = False

    @property
    def is_window(self) -> bool:
        """Whether a replace state can be taken behind any row, so that padding stays out of it."""
        return self.kind == "replace" and self.row_axis is not None


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
    """The class of a state that keeps its last rows: a cache that drops old ones, or the window of a convolution."""
    found = last_rows(after, before, len(state.shape))
    if found is None:
        return None
    rows, made, axis, kept = found.rows.name, found.joined.name, found.axis, found.count
    why = f"node {made} (Concat) puts {rows!r} behind it on axis {axis}, and the last {kept} rows are kept"
    if axis == state.growing_axis:
        return StateClass(state.id, "append", axis, rows, why, kept=kept)
    if kept != state.shape[axis]:
        return None
    return StateClass(state.id, "replace", axis, found.joined.outputs[0].name, why, kept=kept)


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
