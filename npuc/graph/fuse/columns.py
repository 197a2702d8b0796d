"""What attention has per head beside masks: the slope of a position bias, and a sink, a column without value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.graph.fuse.paths import chain, keeps_order, product
from npuc.graph.nodes import DOMAIN, attributes, constant, dims, is_op, producer, scalar


def read_slopes(value: ir.Value | None) -> tuple[float, ...] | None:
    """The slopes of a value that is npuc.StepBias behind moves and factors, else None."""
    if value is None:
        return None
    steps = chain(value)
    for position in range(len(steps) + 1):
        source = value if position == 0 else steps[position - 1].source
        node = producer(source, "StepBias", domain=DOMAIN)
        if node is not None:
            passed = steps[:position]
            if passed and not keeps_order(passed):
                return None
            return tuple(slope * product(passed) for slope in attributes(node)["slopes"])
    return None


def read_sinks(value: ir.Value | None) -> tuple[tuple[float, ...], ir.Value | None] | str:
    """The sinks of the value that softmax takes, and the scores before them; no sinks where nothing is joined.

    The form is Concat(scores, column [.., H, rows, 1]), perhaps with its maximum subtracted. The column is a constant,
    or one that is added to zeros of the right shape.
    """
    shifted = producer(value, "Sub")
    if shifted is not None:
        top = producer(shifted.inputs[1], "ReduceMax")
        if top is not None and top.inputs[0] is shifted.inputs[0]:
            value = shifted.inputs[0]
    joined = producer(value, "Concat")
    if joined is None or value is None or attributes(joined)["axis"] % len(dims(value)) != len(dims(value)) - 1:
        return (), value
    scores, *others = joined.inputs
    column = _held(others[0]) if len(others) == 1 else None
    if column is None or column.ndim < 3 or column.shape[-1] != 1:
        return f"{value.name!r} joins scores with something that is no constant column per head"
    rows = column.reshape(-1, column.shape[-2]).astype(np.float64)
    if not bool((rows == rows[:, :1]).all()):
        return f"{value.name!r} joins scores with a column that differs from row to row"
    return tuple(rows[:, 0].tolist()), scores


def _held(value: ir.Value | None) -> np.ndarray | None:
    """The content of a constant, or of a constant plus the product of anything finite with zero."""
    added = producer(value, "Add")
    if value is None or added is None:
        return constant(value)
    for zeros, other in (added.inputs, reversed(added.inputs)):
        times = producer(zeros, "Mul")
        held = constant(other)
        if held is not None and times is not None and any(scalar(v) == 0 for v in times.inputs):
            return np.broadcast_to(held, dims(value))
    return None


def drops_last_column(node: ir.Node) -> bool:
    """Whether a node takes all but the last element of its input's last axis."""
    if not is_op(node, "Slice") or node.inputs[0] is None:
        return False
    shape = dims(node.inputs[0])
    start = constant(node.inputs[1])
    return dims(node.outputs[0]) == (*shape[:-1], shape[-1] - 1) and start is not None and not start.any()
