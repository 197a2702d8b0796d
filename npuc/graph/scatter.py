"""Caches of a fixed size, into which the rows of a run are written: found, and said as npuc.WriteRows.

A cache of N slots [1, G, N, D] holds token i in slot i. What such a graph reads is the whole buffer, past rows and new
ones; how many are filled it counts in integer states of its own.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.edit import Names, source_of
from npuc.graph.expand.place import Place
from npuc.graph.nodes import DOMAIN, attributes, is_op, producer
from npuc.graph.recognise.probe import Point, Prober
from npuc.graph.state_class import StateClass
from npuc.graph.state_info import StateInfo

CACHE_ROWS_AXIS = 2


def find_fixed_caches(
    model: ir.Model, states: Sequence[StateInfo], classes: Sequence[StateClass]
) -> tuple[list[StateInfo], list[StateClass]]:
    """The states and their classes, those of fixed caches as append states; their writes become npuc.WriteRows.

    Integers of one element whose next value follows from themselves and the step alone count rows, which `check_counts`
    proves.
    """
    names = Names(model.graph)
    inputs = {v.name: v for v in model.graph.inputs}
    outputs = {v.name: v for v in model.graph.outputs}
    new_states, new_classes = list(states), list(classes)
    for index, (state, kind) in enumerate(zip(states, classes, strict=True)):
        before, after = inputs.get(state.input), outputs.get(state.output)
        if kind.kind == "replace" and before is not None and after is not None and len(state.shape) == 4:
            found = _say_write(model.graph, before, after, names)
            if found is not None:
                slots = state.shape[CACHE_ROWS_AXIS]
                why = f"node {found.node} ({found.op}) writes rows into its {slots} slots"
                new_states[index] = replace(state, growing_axis=CACHE_ROWS_AXIS)
                new_classes[index] = StateClass(
                    state.id, "append", CACHE_ROWS_AXIS, found.rows, why, slots=slots, circular=found.circular
                )
    numbers = {state.input for state in states if state.dtype in _WHOLE and int(np.prod(state.shape)) == 1}
    for index, (state, kind) in enumerate(zip(states, classes, strict=True)):
        after = outputs.get(state.output)
        if kind.kind == "replace" and state.input in numbers and after is not None and _counts(after, numbers):
            new_classes[index] = replace(kind, kind="counter", why="it counts the tokens")
    return new_states, new_classes


_WHOLE = (int(ir.DataType.INT64), int(ir.DataType.INT32))


def _counts(after: ir.Value, numbers: Set[str | None]) -> bool:
    """Whether a value follows from constants, shapes and these inputs alone."""
    stack, seen = [after], set[ir.Value]()
    while stack:
        value = stack.pop()
        node = value.producer()
        if value in seen or value.const_value is not None:
            continue
        seen.add(value)
        if node is None:
            if value.name not in numbers:
                return False
        elif not is_op(node, "Shape", "Size"):
            stack.extend(operand for operand in node.inputs if operand is not None)
    return True


@dataclass(frozen=True)
class _Write:
    """What writes a cache. rows: name of the new rows. circular: whether it goes on in front behind the last slot."""

    rows: str
    node: str
    op: str
    circular: bool = False


def _say_write(graph: ir.Graph, before: ir.Value, after: ir.Value, names: Names) -> _Write | None:
    """Puts npuc.WriteRows(before, new rows, first row) in the place of the nodes that write a cache, if they do."""
    made = source_of(after)
    write = producer(made, "WriteRows", domain=DOMAIN)  # an attention operator has been written out with it
    if write is not None and write.inputs[1] is not None:
        rows = write.inputs[1].name or ""
        return _Write(rows, write.name or "", "WriteRows") if source_of(write.inputs[0]) is before else None
    scatter = producer(made, "TensorScatter")
    return _scattered(graph, before, scatter, names) if scatter is not None else _indexed(graph, before, made, names)


def _scattered(graph: ir.Graph, before: ir.Value, node: ir.Node, names: Names) -> _Write | None:
    """TensorScatter(before, new rows, first row?) along the rows."""
    if source_of(node.inputs[0]) is not before or attributes(node).get("axis", -2) not in (-2, CACHE_ROWS_AXIS):
        return None
    place = Place(graph, node, names)
    first = place.input(2)
    start = place.whole(0) if first is None else place.op("ReduceMin", first, keepdims=0)
    new = place.required(1)
    place.replace(place.op("WriteRows", before, new, start, domain=DOMAIN))
    mode = attributes(node).get("mode", "linear")
    return _Write(new.name or "", node.name or "", node.op_type, circular=mode in ("circular", b"circular"))


def _indexed(graph: ir.Graph, before: ir.Value, made: ir.Value | None, names: Names) -> _Write | None:
    """Transpose(ScatterND(Transpose(before), indices [S, 1], rows [S, ...])), whose first transposition brings the rows
    to the front and whose last one undoes it."""
    last = producer(made, "Transpose")
    scatter = producer(source_of(last.inputs[0]), "ScatterND") if last is not None else None
    if last is None or scatter is None or attributes(scatter).get("reduction", "none") not in ("none", b"none"):
        return None
    data, indices, rows = scatter.inputs
    first = producer(source_of(data), "Transpose")
    if first is None or source_of(first.inputs[0]) is not before:
        return None
    perm, back = list(attributes(first).get("perm", (3, 2, 1, 0))), list(attributes(last).get("perm", (3, 2, 1, 0)))
    index_shape = indices.shape if indices is not None else None
    if perm[0] != CACHE_ROWS_AXIS or [perm[p] for p in back] != [0, 1, 2, 3]:
        return None
    if index_shape is not None and (len(index_shape) != 2 or index_shape[1] != 1):
        return None
    place = Place(graph, last, names)
    new = place.op("Transpose", rows, perm=back)
    place.replace(place.op("WriteRows", before, new, place.op("ReduceMin", indices, keepdims=0), domain=DOMAIN))
    return _Write(new.name or "", scatter.name or "", scatter.op_type)


def check_counts(
    graph: ir.Graph, states: Sequence[StateInfo], classes: Sequence[StateClass], prober: Prober, points: Sequence[Point]
) -> None:
    """Proves on probes that caches of a fixed size are written from row n_past on, and that counters then have n_past
    and the new rows. Raises ModelRefused naming the states for which it does not hold."""
    outputs = {value.name: value for value in graph.outputs}
    problems = Problems()
    for state, kind in zip(states, classes, strict=True):
        after = outputs.get(state.output)
        if kind.kind == "counter" and after is not None:
            if any(prober.evaluate(after, point).reshape(-1).tolist() != [point.total] for point in points):
                problems.add(f"state {state.id!r} is an integer that each run replaces, but does not count the tokens")
            elif state.initial is not None and state.initial.any():
                problems.add(
                    f"state {state.id!r} counts the tokens, but starts with {state.initial.reshape(()).item()}"
                )
        elif kind.slots is not None:
            write = producer(source_of(after), "WriteRows", domain=DOMAIN)
            assert write is not None and write.inputs[2] is not None, f"the write of {state.id} has been found above"
            wrong = _wrong_slots(write.inputs[2], prober, points, kind.slots if kind.circular else None)
            if wrong is not None:
                due = list(range(wrong.n_past, wrong.total))
                problems.add(
                    f"state {state.id!r}: with {wrong.n_past} past rows its cache is not written at {due}, the slots "
                    "of the new ones"
                )
    problems.refuse()


def _wrong_slots(start: ir.Value, prober: Prober, points: Sequence[Point], ring: int | None) -> Point | None:
    """A step at which rows are not written from n_past on. start: the first row; of ScatterND the least of them all,
    which says nothing of the others. ring: slots of a circular cache."""
    least = start.producer()
    indices = least.inputs[0] if least is not None and is_op(least, "ReduceMin") else None
    for point in points:
        found = prober.evaluate(start if indices is None else indices, point)
        if found.ndim == 2:
            right = found.tolist() == [[slot] for slot in range(point.n_past, point.total)]
        else:
            first = found.reshape(-1).tolist()
            right = first == [point.n_past] or (
                ring is not None and [row % ring for row in first] == [point.n_past % ring]
            )
        if not right:
            return point
    return None
