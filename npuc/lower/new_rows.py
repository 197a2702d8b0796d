"""New rows of a state: where they go in its buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from npuc.graph.entry import EntryGraph, StateSpec
from npuc.lower import views
from npuc.lower.context import KernelCall, Lowering, static_shape
from npuc.lower.storage import Storage
from npuc.tasks import Buffer, Region
from npurt.abi.dtypes import DType


def state_dtype(state: StateSpec, storage: Storage) -> DType:
    """The element type of a state in device memory."""
    if state.dtype.is_float:
        return storage.floats
    return DType.I32 if state.dtype is DType.I64 else state.dtype


def whole_state(low: Lowering, state: StateSpec, buffer: Buffer) -> Region:
    """All of a state's buffer."""
    dtype = state_dtype(state, low.storage)
    return Region(buffer, 0, dtype, state.shape, views.contiguous_strides(state.shape, dtype.nbytes))


def filled_rows(entry: EntryGraph, states: list[StateSpec]) -> dict[str, int]:
    """Rows that each append state of a plain graph has before the run, by id; a language model's are n_past."""
    if entry.name != "main":
        return {}
    shapes = {value.name: static_shape(value) for value in entry.model.graph.inputs}
    grown = [(state, state.row_axis) for state in states if state.kind == "append"]
    return {state.id: shapes[state.input][axis] for state, axis in grown if axis is not None}


def storing_nodes(graph: ir.Graph, states: Sequence[StateSpec]) -> dict[ir.Node, list[tuple[StateSpec, ir.Value]]]:
    """The nodes behind which new rows are stored, with the states and the rows: they need not wait on the chip for the
    end of the entry.

    Rows of an append state go out as soon as they are made, since no reader of the entry sees the slots from n_past on;
    those of a ring when the last node that reads the ring is done.
    """
    order = {node: place for place, node in enumerate(graph)}
    outputs = {value.name: value for value in graph.outputs}
    inputs = {value.name: value for value in graph.inputs}
    found: dict[ir.Node, list[tuple[StateSpec, ir.Value]]] = {}
    for state in states:
        value = outputs.get(state.output) if state.gains_rows else None
        maker = value.producer() if value is not None else None
        if value is None or maker is None:
            continue
        readers = [use.node for use in inputs[state.input].uses()] if state.kind == "ring" else []
        found.setdefault(max([maker, *readers], key=order.__getitem__), []).append((state, value))
    return found


def append(low: Lowering, state: StateSpec, rows: Region, buffer: Buffer, filled: Mapping[str, int]) -> None:
    """Writes a run's new rows: behind the `filled` ones, from n_past on, or to their slots of a ring."""
    whole, name = whole_state(low, state, buffer), f"next.{state.id}"
    if state.id in filled:
        assert state.row_axis is not None
        count = rows.shape[state.row_axis]
        place = views.take_slice(whole, state.row_axis, filled[state.id], count)
        low.copy(ir.Node("", "Identity", inputs=[], name=name), rows, place)
    elif state.kind == "ring":
        new, held = (_rows_first(_rank3(region, state)) for region in (rows, whole))
        slots = _slots(low, new.shape[0], held.shape[0])
        low.calls.append(KernelCall("ring_rows", (new, slots, held), {}, name))
    else:
        low.calls.append(KernelCall("append_rows", (_rank3(rows, state), _rank3(whole, state)), {}, name))


def _slots(low: Lowering, rows: int, ring: int) -> Region:
    """The slots of a run's rows in a ring of so many, once for all states with such a ring."""
    if ring not in low.slots:
        low.slots[ring] = low.temporary(f"slots.{ring}", (rows,), DType.I32)
        low.calls.append(KernelCall("ring_slots", (low.slots[ring],), {"ring": ring}, f"slots.{ring}"))
    return low.slots[ring]


def _rank3(region: Region, state: StateSpec) -> Region:
    """A state that gains rows as [G, rows, D]: the axes before and behind the rows merged."""
    axis = state.row_axis
    assert axis is not None
    front = views.merge_axes([replace(region, shape=region.shape[:axis], stride=region.stride[:axis])], 1)
    back = views.merge_axes([replace(region, shape=region.shape[axis + 1 :], stride=region.stride[axis + 1 :])], 1)
    assert front is not None and back is not None, f"state {state.id}: {region.shape} does not fold to [G, rows, D]"
    shape = (*front[0].shape, region.shape[axis], *back[0].shape)
    return replace(region, shape=shape, stride=(*front[0].stride, region.stride[axis], *back[0].stride))


def _rows_first(region: Region) -> Region:
    """[G, rows, D] as [rows, G, D]."""
    return views.transpose(region, (1, 0, 2))
