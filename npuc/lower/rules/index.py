"""Ops that find elements by computed numbers: places are worked out on the device, then rows are moved."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute, ints, static_shape
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.expression import Expression, Operand, Scalar, Step
from npuc.tasks import Region
from npurt.abi.dtypes import DType


def gather_elements(low: Lowering, node: ir.Node) -> None:
    """GatherElements: for each element of the index, the element of x at the same place but for `axis`."""
    source, index = low.region(node.inputs[0]), low.region(node.inputs[1])
    axis = int(attribute(node, "axis", 0)) % source.rank
    step = math.prod(source.shape[axis + 1 :])
    base = _places(index.shape, source.shape, skip=(axis,))
    flat = _row_numbers(low, node, [index], [source.shape[axis]], [step], base)
    _gather(low, node, low.shaped(source, (source.elements, 1), node), flat, node.outputs[0])


def gather_nd(low: Lowering, node: ir.Node) -> None:
    """GatherND: the last axis of the index names the first axes of x behind `batch_dims` common ones."""
    source, index = low.region(node.inputs[0]), low.region(node.inputs[1])
    batch = int(attribute(node, "batch_dims", 0))
    columns = index.shape[-1]
    inner = math.prod(source.shape[batch + columns :])
    extents = source.shape[batch : batch + columns]
    table = low.shaped(source, (math.prod(source.shape[: batch + columns]), inner), node)
    flat = _rows_of(low, node, index, source.shape[: batch + columns], extents, batch)
    _gather(low, node, table, flat, node.outputs[0])


def scatter_nd(low: Lowering, node: ir.Node) -> None:
    """ScatterND: a copy of x whose rows that the index names are replaced, or joined, by updates."""
    source, index, updates = (low.region(value) for value in node.inputs[:3])
    columns = index.shape[-1]
    rows, inner = math.prod(source.shape[:columns]), math.prod(source.shape[columns:])
    flat = _rows_of(low, node, index, source.shape[:columns], source.shape[:columns], 0)
    _scatter(low, node, source, flat, updates, (rows, inner))


def scatter_elements(low: Lowering, node: ir.Node) -> None:
    """ScatterElements: as ScatterND, element by element along one axis."""
    source, index, updates = (low.region(value) for value in node.inputs[:3])
    axis = int(attribute(node, "axis", 0)) % source.rank
    step = math.prod(source.shape[axis + 1 :])
    base = _places(index.shape, source.shape, skip=(axis,))
    flat = _row_numbers(low, node, [index], [source.shape[axis]], [step], base)
    _scatter(low, node, source, flat, updates, (source.elements, 1))


def one_hot(low: Lowering, node: ir.Node) -> None:
    """OneHot: one value where the position along the new axis is the index, else the other; negatives from the back."""
    index, values, out = low.region(node.inputs[0]), low.region(node.inputs[2]), low.new(node.outputs[0])
    depth = (ints(node, 1) or [0])[0]
    axis = int(attribute(node, "axis", -1)) % out.rank
    shape = out.shape
    wide = views.reshape(index, (*index.shape[:axis], 1, *index.shape[axis:]))
    if wide is None:
        wide = low.copied(index, node, (*index.shape[:axis], 1, *index.shape[axis:]))
    column = low.consts.array(np.arange(depth, dtype=np.int32), DType.I32)
    column = views.expand(_along(column, axis, out.rank), shape)
    off, on = (views.expand(_along(views.take_slice(values, 0, i, 1), 0, out.rank), shape) for i in (0, 1))
    to_int: tuple[Step, ...] = (Step("Cast", (0,), (("to", DType.I32),)),)
    steps = (
        *to_int, Step("Less", (4, Scalar(0))), Step("Add", (4, Scalar(depth))), Step("Where", (5, 6, 4)),
        Step("Equal", (7, 1)), Step("Where", (8, 3, 2)),
    )  # fmt: skip
    for parts in views.parts([views.expand(wide, shape), column, off, on, out]):
        arrays = [*(views.narrowed(region) for region in parts[:-1]), parts[-1]]
        low.call("map4", arrays, node, fn=Expression(4, steps))
    low.at[node.outputs[0]] = out


def trilu(low: Lowering, node: ir.Node) -> None:
    """Trilu: the upper or lower triangle of the last two axes, zeros elsewhere."""
    source, out = low.region(node.inputs[0]), low.new(node.outputs[0])
    diagonal = (ints(node, 1) or [0])[0]
    triangle = np.triu if attribute(node, "upper", 1) else np.tril
    kept = low.consts.array(triangle(np.ones(source.shape[-2:], np.bool_), diagonal), DType.BOOL)
    zero = False if source.dtype is DType.BOOL else 0.0 if source.dtype.is_float else 0
    fn = Expression(2, (Step("Where", (1, 0, Scalar(zero))),))
    for parts in views.parts([source, views.expand(kept, source.shape), out]):
        low.call("map2", [parts[0], views.narrowed(parts[1]), parts[2]], node, fn=fn)
    low.at[node.outputs[0]] = out


def _along(vector: Region, axis: int, rank: int) -> Region:
    """A vector as the axis of a region of that rank, the other axes of extent one."""
    fitted = views.reshape(vector, [vector.shape[0] if a == axis else 1 for a in range(rank)])
    assert fitted is not None
    return fitted


def _places(shape: Sequence[int], table: Sequence[int], skip: Sequence[int]) -> np.ndarray:
    """Row-major place in a table of the element at each position of `shape`, without what the axes `skip` add."""
    total = np.zeros(tuple(shape), np.int64)
    for axis, extent in enumerate(shape):
        if axis not in skip:
            step = math.prod(table[axis + 1 :])
            total += np.arange(extent).reshape([-1 if a == axis else 1 for a in range(len(shape))]) * step
    return total


def _rows_of(low: Lowering, node: ir.Node, index: Region, table: Sequence[int], extents: Sequence[int],
             batch: int) -> Region:  # fmt: skip
    """Row numbers from an index whose last axis has a column for each axis of the table behind `batch` ones."""
    columns = index.shape[-1]
    parts = [_column(index, place) for place in range(columns)]
    steps = [math.prod(table[batch + place + 1 :]) for place in range(columns)]
    base = _places(index.shape[:-1], table, skip=range(batch, len(index.shape)))
    return _row_numbers(low, node, parts, extents, steps, base)


def _column(index: Region, place: int) -> Region:
    return views.at(index, index.rank - 1, place)


def _row_numbers(low: Lowering, node: ir.Node, columns: Sequence[Region], extents: Sequence[int],
                 steps: Sequence[int], base: np.ndarray) -> Region:  # fmt: skip
    """base + sum of step * column as an int32 vector; negative numbers count from the back."""
    count, made = len(columns), len(columns) + 1
    program: list[Step] = []
    total: Operand = count  # the constant base is the last input
    for place, (extent, step) in enumerate(zip(extents, steps, strict=True)):
        program += [
            Step("Less", (place, Scalar(0))),
            Step("Add", (place, Scalar(extent))),
            Step("Where", (made, made + 1, place)),
            Step("Mul", (made + 2, Scalar(step))),
            Step("Add", (total, made + 3)),
        ]
        total, made = made + 4, made + 5
    constant = low.consts.array(base.astype(np.int32), DType.I32)
    out = low.temporary(f"{node.name}.rows", base.shape, DType.I32)
    for parts in views.parts([*columns, constant, out]):
        low.call(f"map{count + 1}", parts, node, fn=Expression(count + 1, tuple(program)))
    return low.shaped(out, (math.prod(base.shape),), node)


def _gather(low: Lowering, node: ir.Node, table: Region, rows: Region, output: ir.Value) -> None:
    out = low.new(output)
    flat = views.reshape(out, (rows.elements, table.shape[1]))
    assert flat is not None, "a new value is row-major"
    low.call("gather_rows", (table, rows, flat), node)
    low.at[output] = out


def _scatter(low: Lowering, node: ir.Node, source: Region, rows: Region, updates: Region,
             shape: tuple[int, int]) -> None:  # fmt: skip
    out = low.new(node.outputs[0])
    if static_shape(node.outputs[0]) != source.shape:
        raise LoweringRefused([f"{describe(node)}: its output has another shape than its input"])
    flat = views.reshape(out, shape)
    assert flat is not None, "a new value is row-major"
    arrays = (low.shaped(source, shape, node), rows, low.shaped(updates, (rows.elements, shape[1]), node), flat)
    low.call("scatter_rows", arrays, node, reduction=str(attribute(node, "reduction", "none")))
    low.at[node.outputs[0]] = out


RULES = {
    ("", "GatherElements"): gather_elements,
    ("", "GatherND"): gather_nd,
    ("", "ScatterElements"): scatter_elements,
    ("", "ScatterND"): scatter_nd,
    ("", "OneHot"): one_hot,
    ("", "Trilu"): trilu,
}
