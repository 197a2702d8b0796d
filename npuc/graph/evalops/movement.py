"""Operators that move, repeat, select or create elements without arithmetic on them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from npuc.graph.evalops.common import Array, Attributes, EvaluationError, Inputs, OpFunction, OutOfTable, given, ints
from npuc.graph.evalops.common import required as need


def _reshape(inputs: Inputs, attributes: Attributes) -> Array:
    x, target = need(inputs, 0), ints(need(inputs, 1))
    if not attributes.get("allowzero", 0):
        target = [x.shape[i] if extent == 0 else extent for i, extent in enumerate(target)]
    return x.reshape(target)


def _flatten(inputs: Inputs, attributes: Attributes) -> Array:
    x, axis = need(inputs, 0), attributes.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


def _squeeze(inputs: Inputs, attributes: Attributes) -> Array:
    axes = given(inputs, 1)
    return np.squeeze(need(inputs, 0), None if axes is None else tuple(ints(axes)))


def _unsqueeze(inputs: Inputs, attributes: Attributes) -> Array:
    return np.expand_dims(need(inputs, 0), tuple(ints(need(inputs, 1))))


def _transpose(inputs: Inputs, attributes: Attributes) -> Array:
    return np.transpose(need(inputs, 0), attributes.get("perm"))


def _concat(inputs: Inputs, attributes: Attributes) -> Array:
    return np.concatenate([need(inputs, i) for i in range(len(inputs))], axis=attributes["axis"])


def split_sizes(extent: int, parts: int) -> list[int]:
    """Sizes of `parts` equal pieces; the last is shorter where the extent does not divide."""
    size = -(-extent // parts)
    return [max(0, min(size, extent - i * size)) for i in range(parts)]


def _split(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    x, sizes, axis = need(inputs, 0), given(inputs, 1), attributes.get("axis", 0)
    parts = ints(sizes) if sizes is not None else split_sizes(x.shape[axis], attributes["num_outputs"])
    edges = np.cumsum([0, *parts])
    return tuple(np.take(x, np.arange(a, b), axis=axis) for a, b in pairwise(edges))


def slices(shape: tuple[int, ...], inputs: Inputs) -> tuple[slice, ...]:
    """The Python slices of an ONNX Slice of a value with this shape, starts and ends clamped as the standard says."""
    starts, ends = ints(need(inputs, 1)), ints(need(inputs, 2))
    axes, steps = given(inputs, 3), given(inputs, 4)
    result = [slice(None)] * len(shape)
    for i, axis in enumerate(ints(axes) if axes is not None else range(len(starts))):
        extent, step = shape[axis], ints(steps)[i] if steps is not None else 1
        start, end = (v + extent if v < 0 else v for v in (starts[i], ends[i]))
        if step > 0:
            result[axis] = slice(min(max(start, 0), extent), min(max(end, 0), extent), step)
        else:
            end = min(max(end, -1), extent - 1)
            result[axis] = slice(min(max(start, 0), extent - 1), None if end < 0 else end, step)
    return tuple(result)


def _slice(inputs: Inputs, attributes: Attributes) -> Array:
    x = need(inputs, 0)
    return x[slices(x.shape, inputs)]


def _checked(indices: Array, extent: int, what: str) -> Array:
    """Indices from the front; OutOfTable where one lies outside."""
    if indices.size and (int(indices.max()) >= extent or int(indices.min()) < -extent):
        worst = int(indices.max()) if int(indices.max()) >= extent else int(indices.min())
        raise OutOfTable(f"{what} reads row {worst} of a table of {extent}", extent)
    return np.where(indices < 0, indices + extent, indices)


def _gather(inputs: Inputs, attributes: Attributes) -> Array:
    x, axis = need(inputs, 0), attributes.get("axis", 0)
    return np.take(x, _checked(need(inputs, 1), x.shape[axis], "Gather"), axis=axis)


def _gather_elements(inputs: Inputs, attributes: Attributes) -> Array:
    x, axis = need(inputs, 0), attributes.get("axis", 0)
    return np.take_along_axis(x, _checked(need(inputs, 1), x.shape[axis], "GatherElements"), axis=axis)


def _index_columns(x: Array, indices: Array, batch_dims: int, what: str) -> tuple[Array, ...]:
    """An advanced index from the last axis of `indices`, behind `batch_dims` axes that run along."""
    columns = [_checked(indices[..., i], x.shape[batch_dims + i], what) for i in range(indices.shape[-1])]
    grid = np.ogrid[tuple(slice(n) for n in indices.shape[:-1])][:batch_dims]
    return (*grid, *columns)


def _gather_nd(inputs: Inputs, attributes: Attributes) -> Array:
    x, indices = need(inputs, 0), need(inputs, 1)
    picked: Array = x[_index_columns(x, indices, attributes.get("batch_dims", 0), "GatherND")]
    return picked


_SCATTER_REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(x: Array, index: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    result = x.copy()
    if reduction == "none":
        result[index] = updates
    else:
        _SCATTER_REDUCTIONS[reduction].at(result, index, updates)
    return result


def _scatter_nd(inputs: Inputs, attributes: Attributes) -> Array:
    x, indices, updates = need(inputs, 0), need(inputs, 1), need(inputs, 2)
    return _scatter(x, _index_columns(x, indices, 0, "ScatterND"), updates, attributes.get("reduction", "none"))


def _scatter_elements(inputs: Inputs, attributes: Attributes) -> Array:
    x, indices, updates = need(inputs, 0), need(inputs, 1), need(inputs, 2)
    axis = attributes.get("axis", 0) % x.ndim
    grid = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = _checked(indices, x.shape[axis], "ScatterElements")
    return _scatter(x, tuple(grid), updates, attributes.get("reduction", "none"))


def _expand(inputs: Inputs, attributes: Attributes) -> Array:
    x = need(inputs, 0)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(ints(need(inputs, 1)))))


def _pad(inputs: Inputs, attributes: Attributes) -> Array:
    x, pads, fill, axes = need(inputs, 0), ints(need(inputs, 1)), given(inputs, 2), given(inputs, 3)
    where = [a % x.ndim for a in ints(axes)] if axes is not None else list(range(x.ndim))
    widths = [(0, 0)] * x.ndim
    for i, axis in enumerate(where):
        widths[axis] = (pads[i], pads[i + len(where)])
    if any(width < 0 for pair in widths for width in pair):
        raise EvaluationError("a negative pad")
    mode = attributes.get("mode", "constant")
    if mode == "edge":
        return np.pad(x, widths, mode="edge")
    if mode == "reflect":
        return np.pad(x, widths, mode="reflect")
    if mode != "constant":
        raise EvaluationError(f"pad mode {mode!r}")
    return np.pad(x, widths, constant_values=0 if fill is None else fill.reshape(()))


def _trilu(inputs: Inputs, attributes: Attributes) -> Array:
    diagonal = given(inputs, 1)
    function = np.triu if attributes.get("upper", 1) else np.tril
    return function(need(inputs, 0), 0 if diagonal is None else int(diagonal.reshape(())))


def _range(inputs: Inputs, attributes: Attributes) -> Array:
    start, limit, delta = (need(inputs, i).reshape(()) for i in range(3))
    count = max(0, int(np.ceil((float(limit) - float(start)) / float(delta))))
    steps: Array = np.arange(count, dtype=start.dtype) * delta
    return np.asarray(start + steps, dtype=start.dtype)


def _constant_of_shape(inputs: Inputs, attributes: Attributes) -> Array:
    value = attributes.get("value")
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)
    return np.full(ints(need(inputs, 0)), fill.reshape(-1)[0], fill.dtype)


def _constant(inputs: Inputs, attributes: Attributes) -> Array:
    for name, dtype in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64)):
        if name in attributes:
            return np.array(attributes[name], dtype)
    if "value_ints" in attributes:
        return np.array(attributes["value_ints"], np.int64)
    return np.asarray(attributes["value"])


def _shape(inputs: Inputs, attributes: Attributes) -> Array:
    return np.array(need(inputs, 0).shape[attributes.get("start", 0) : attributes.get("end")], np.int64)


def _one_hot(inputs: Inputs, attributes: Attributes) -> Array:
    indices, depth, values = need(inputs, 0), int(need(inputs, 1).reshape(())), need(inputs, 2)
    hot = np.arange(depth) == np.where(indices < 0, indices + depth, indices)[..., None]
    axis = attributes.get("axis", -1)
    return np.moveaxis(np.where(hot, values[1], values[0]), -1, axis if axis >= 0 else indices.ndim + 1 + axis)


OPERATORS: dict[str, OpFunction] = {
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "ScatterND": _scatter_nd,
    "ScatterElements": _scatter_elements,
    "Expand": _expand,
    "Tile": lambda inputs, _: np.tile(need(inputs, 0), ints(need(inputs, 1))),
    "Pad": _pad,
    "Trilu": _trilu,
    "Range": _range,
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape,
    "Size": lambda inputs, _: np.array(need(inputs, 0).size, np.int64),
    "OneHot": _one_hot,
    "NonZero": lambda inputs, _: np.array(np.nonzero(need(inputs, 0)), np.int64),
}
