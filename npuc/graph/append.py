"""The caches of a language model: their place in memory, and the cut that leaves just a run's new rows as an output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.entry import StateSpec
from npuc.graph.nodes import dims
from npuc.graph.state_class import StateClass
from npuc.graph.state_info import StateInfo
from npurt.abi.dtypes import DType

ROW_AXIS = 2
"""Axis of the rows in a cache [1, G, rows, D]."""

_DTYPES = {
    ir.DataType.FLOAT: DType.F32,
    ir.DataType.FLOAT16: DType.F16,
    ir.DataType.BFLOAT16: DType.BF16,
    ir.DataType.INT32: DType.I32,
    ir.DataType.INT64: DType.I64,
    ir.DataType.INT8: DType.I8,
    ir.DataType.UINT8: DType.U8,
    ir.DataType.BOOL: DType.BOOL,
}


def check_caches(states: Sequence[StateInfo], classes: Sequence[StateClass]) -> None:
    """Raises ModelRefused naming each growing state that is not a cache [1, G, rows, D] to which a run appends rows."""
    problems = Problems()
    for state, kind in zip(states, classes, strict=True):
        if state.growing_axis is None:
            continue
        if kind.kind != "append":
            problems.add(f"state {state.id!r} grows, but {kind.why}")
        elif len(state.shape) != 4 or state.growing_axis != ROW_AXIS:
            problems.add(
                f"state {state.id!r} of rank {len(state.shape)} grows along axis {state.growing_axis}; "
                "a cache must be [batch, heads, rows, size]"
            )
        elif kind.rows is None:
            problems.add(f"state {state.id!r}: {kind.why}, a form that no rule takes yet")
    problems.refuse()


def release_growing_pairs(graph: ir.Graph, states: Sequence[StateInfo]) -> list[StateInfo]:
    """The states of a plain graph: a pair of an input and a longer output is just that, under its names in the file,
    unless the user bounds its rows."""
    kept = []
    values = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    for state in states:
        unbounded = state.growing_axis is not None and state.max_rows is None
        if state.form == "pair" and unbounded and len(state.aliases) == 2:
            for name, alias in zip((state.input, state.output), state.aliases, strict=True):
                values[name].name = alias
        else:
            kept.append(state)
    return kept


def cut_to_new_rows(graph: ir.Graph, states: Sequence[StateInfo], classes: Sequence[StateClass]) -> None:
    """Replaces the output of each append state, its rows and the new ones, by the new rows alone, in place."""
    made = {output.name: output for node in graph for output in node.outputs}
    given = {value.name: value for value in (*graph.inputs, *graph.initializers.values())}
    for state, kind in zip(states, classes, strict=True):
        if kind.kind == "append":
            place = next(i for i, value in enumerate(graph.outputs) if value.name == state.output)
            graph.outputs[place] = made[kind.rows] if kind.rows in made else given[kind.rows]


def state_specs(
    states: Sequence[StateInfo],
    classes: Sequence[StateClass],
    graph: ir.Graph,
    physical_rows: Mapping[str, int],
    rings: Mapping[str, int],
) -> list[StateSpec]:
    """Records of the states for lowering.

    graph: of any finished entry, for the extents that the states' declarations leave open. physical_rows: of each
    append state, by id. rings: slots of those that are rings, by the name of their input. Raises ModelRefused naming
    one that does not keep its shape.
    """
    inputs = {value.name: value for value in graph.inputs}
    outputs = {value.name: value for value in graph.outputs}
    result, problems = [], Problems()
    for state, kind in zip(states, classes, strict=True):
        if kind.kind == "counter":  # has become n_past
            continue
        ring = rings.get(state.input or "")
        held = inputs.get(state.input) or outputs[state.output]
        shape = list(dims(held))
        if kind.kind == "replace" and dims(outputs[state.output]) != dims(held):
            problems.add(
                f"state {state.id!r} is {shape} before a run and {list(dims(outputs[state.output]))} after it; "
                f"a state must keep its shape, or get rows behind it ({kind.why})"
            )
        if kind.kind == "append" and kind.row_axis is not None:
            shape[kind.row_axis] = ring or physical_rows[state.id]
        result.append(
            StateSpec(
                id=state.id,
                shape=tuple(shape),
                dtype=_DTYPES[ir.DataType(state.dtype)],
                kind=kind.kind if ring is None else "ring",
                row_axis=kind.row_axis if kind.kind == "append" else None,
                initial=_initial(state, shape, kind),
                input=state.input if state.input in inputs else None,
                output=state.output if state.output in outputs else None,
                why=kind.why if ring is None else f"{kind.why}: token i lies in slot i modulo {ring}",
            )
        )
    problems.refuse()
    return result


def _initial(state: StateInfo, shape: Sequence[int], kind: StateClass) -> np.ndarray | None:
    """The first value in the state's physical shape; None for zeros."""
    if kind.kind != "append" or state.initial is None or state.initial.size == 0:
        return state.initial if kind.kind != "append" else None
    whole = np.zeros(shape, state.initial.dtype)
    whole[tuple(slice(extent) for extent in state.initial.shape)] = state.initial
    return whole
