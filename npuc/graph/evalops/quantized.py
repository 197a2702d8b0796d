"""Quantising and dequantising with one scale, one per channel, or one per block."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from npuc.graph.evalops.common import Array, Attributes, Inputs, OpFunction, given, widened
from npuc.graph.evalops.common import required as need

_RANGES = {
    np.dtype(np.uint8): (0, 255),
    np.dtype(np.int8): (-128, 127),
    np.dtype(np.uint16): (0, 65535),
    np.dtype(np.int16): (-32768, 32767),
    np.dtype(ml_dtypes.uint4): (0, 15),
    np.dtype(ml_dtypes.int4): (-8, 7),
}


def _spread(parameter: Array, x: Array, attributes: Attributes) -> Array:
    """A scale or zero point, repeated or shaped so that it broadcasts against x."""
    axis, block = attributes.get("axis", 1), attributes.get("block_size", 0)
    if block:
        return np.take(np.repeat(parameter, block, axis=axis), np.arange(x.shape[axis]), axis=axis)
    if parameter.ndim == 1 and parameter.size != 1:
        return parameter.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])
    return parameter.reshape(())


def _dequantize(inputs: Inputs, attributes: Attributes) -> Array:
    x, scale, zero = need(inputs, 0), need(inputs, 1), given(inputs, 2)
    codes = x.astype(np.int32)
    if zero is not None:
        codes = codes - _spread(zero.astype(np.int32), x, attributes)
    return np.asarray(codes.astype(np.float32) * _spread(widened(scale), x, attributes), dtype=scale.dtype)


def _quantize(inputs: Inputs, attributes: Attributes) -> Array:
    """Rounds half to even and saturates; the zero point, or output_dtype, gives the type (uint8 if neither does)."""
    x, scale, zero = need(inputs, 0), need(inputs, 1), given(inputs, 2)
    wanted = attributes.get("output_dtype", 0)
    dtype = zero.dtype if zero is not None else ir.DataType(wanted).numpy() if wanted else np.dtype(np.uint8)
    codes = np.rint(widened(x) / _spread(widened(scale), x, attributes))
    if zero is not None:
        codes = codes + _spread(zero.astype(np.float32), x, attributes)
    return np.asarray(np.clip(codes, *_RANGES[np.dtype(dtype)]), dtype=dtype)


OPERATORS: dict[str, OpFunction] = {"DequantizeLinear": _dequantize, "QuantizeLinear": _quantize}
