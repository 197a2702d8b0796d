"""States that are the last rows of something: caches that drop old rows, and the windows of convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc.graph.edit import source_of
from npuc.graph.nodes import constant, producer


@dataclass(frozen=True)
class LastRows:
    """The next value of a state: the last `count` rows along `axis` of Concat(its value, new rows).

    joined: the Concat. rows: the new rows.
    """

    joined: ir.Node
    rows: ir.Value
    axis: int
    count: int


def last_rows(after: ir.Value, before: ir.Value, rank: int) -> LastRows | None:
    """What a next value Slice(Concat(value or its last rows, new rows)), to the end, keeps; None for another form."""
    outer = _sliced(after)
    made = producer(source_of(outer[0]), "Concat") if outer is not None else None
    if outer is None or made is None or len(made.inputs) != 2 or made.inputs[1] is None:
        return None
    axis, count = outer[1] % max(rank, 1), outer[2]
    front, inner = source_of(made.inputs[0]), _sliced(made.inputs[0])
    if inner is not None and inner[1] % max(rank, 1) == axis:
        front, count = source_of(inner[0]), min(count, inner[2])
    if front is not before or made.attributes["axis"].as_int() % max(rank, 1) != axis:
        return None
    return LastRows(made, made.inputs[1], axis, count)


def _sliced(value: ir.Value | None) -> tuple[ir.Value, int, int] | None:
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
