"""Weights whose data are not there: a shape and a type, for what needs no more than those.

Where a pass looks at a constant to see what a piece of the graph computes (the gain of a norm, a table of angles), it
finds a pattern of positive numbers instead: any such values make the same operators. Whole numbers other than codes of
quantised weights say how a graph works, so they have to be there.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused, Problems

_CODES = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT4, ir.DataType.UINT4, ir.DataType.INT2, ir.DataType.UINT2)
_GOLDEN = 0.6180339887498949


def absent(tensor: ir.TensorProtocol, problems: Problems) -> ir.TensorProtocol:
    """A tensor of this name, type and shape without data; a problem is added where its values decide too much."""
    shape = ir.Shape(tuple(int(extent) for extent in tensor.shape.numpy()))
    if not (tensor.dtype.is_floating_point() or tensor.dtype in _CODES):
        problems.add(
            f"its {tensor.dtype.name.lower()} values are missing, and they say how the graph works",
            f"weight {tensor.name}",
        )
    return ir.LazyTensor(
        lambda: ir.Tensor(_pattern(tensor.dtype, tuple(shape.numpy())), dtype=tensor.dtype),
        dtype=tensor.dtype, shape=shape, cache=False, name=tensor.name,
    )  # fmt: skip


def _pattern(dtype: ir.DataType, shape: tuple[int, ...]) -> np.ndarray:
    if not dtype.is_floating_point():
        raise ModelRefused([f"codes of a weight of shape {list(shape)} are read, and its data are missing"])
    count = int(np.prod(shape, dtype=np.int64))
    return (0.75 + 0.5 * (np.arange(count) * _GOLDEN % 1.0)).reshape(shape).astype(dtype.numpy())
