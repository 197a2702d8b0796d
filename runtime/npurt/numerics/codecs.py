"""Element types between memory and arithmetic: exact widening, one rounding at each store.

Arithmetic knows float32, int32 and bool (and int64, which is only copied). Memory holds what ``npurt.abi.DType`` lists;
bf16 is raw uint16. Narrow floats are handled as bits or on their grid in float32, never as np.float16 arithmetic.

Rules of a store, in order: a float into an integer type rounds half to even, saturates, and NaN gives 0; an integer
into a narrower integer saturates; an integer into a float rounds to nearest even; anything into bool is ``value != 0``;
a NaN into f16 or bf16 becomes the one quiet NaN (0x7e00, 0x7fc0). ``npurt.numerics.formats`` has the rules of
narrower codes, whose memory is one code a byte here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from npurt.abi.dtypes import DType
from npurt.numerics.formats import NUMBERS, decode, encode
from npurt.numerics.halves import bf16_bits_to_f32, f16_bits_to_f32, f16_bits_to_f64, f32_to_bf16_bits, f32_to_f16_bits

Array = np.ndarray

COMPUTE: dict[DType, np.dtype] = {
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float32),
    DType.BF16: np.dtype(np.float32),
    DType.I32: np.dtype(np.int32),
    DType.I8: np.dtype(np.int32),
    DType.U8: np.dtype(np.int32),
    DType.BOOL: np.dtype(np.bool_),
    DType.I64: np.dtype(np.int64),
    **{dtype: numbers.dtype for dtype, numbers in NUMBERS.items()},
}
"""The type in which arithmetic sees an element of memory."""


def load(memory: Array, dtype: DType) -> Array:
    """Elements of memory (an array of ``dtype.storage``, any strides) as a new array of ``COMPUTE[dtype]``. Exact."""
    return _LOAD[dtype](memory)


def load_f64(memory: Array, dtype: DType, out: Array | None = None) -> Array:
    """Elements of float memory as float64, for exact sums. out: where they go, float64, C-contiguous."""
    if dtype is DType.F16:
        return f16_bits_to_f64(memory.view(np.uint16), out)
    values = load(memory, dtype)
    if out is None:
        return values.astype(np.float64)
    out[...] = values
    return out


def store(values: Array, dtype: DType) -> Array:
    """Values (float32, float64, int32, int64 or bool) as an array of ``dtype.storage``, rounded or saturated once.

    Where nothing changes the result is ``values`` itself.
    """
    return _STORE[dtype](values)


def _load_f32(memory: Array) -> Array:
    return memory.astype(np.float32)


def _load_bool(memory: Array) -> Array:
    values: Array = memory != 0
    return values


def _load_i32(memory: Array) -> Array:
    return memory.astype(np.int32)


_LOAD: dict[DType, Callable[[Array], Array]] = {
    DType.F32: _load_f32,
    DType.F16: lambda memory: f16_bits_to_f32(memory.view(np.uint16)),
    DType.BF16: bf16_bits_to_f32,
    DType.I32: _load_i32,
    DType.I8: _load_i32,
    DType.U8: _load_i32,
    DType.BOOL: _load_bool,
    DType.I64: lambda memory: memory.astype(np.int64),
    **{dtype: partial(decode, dtype=dtype) for dtype in NUMBERS},
}


def _integer_store(low: int, high: int, storage: np.dtype) -> Callable[[Array], Array]:
    float_high = min(float(high), 2.0**63 - 1024)  # the largest float64 below 2^63

    def convert(values: Array) -> Array:
        if values.dtype == storage:
            return values
        if values.dtype.kind == "f":
            whole = np.rint(values.astype(np.float64))
            return np.clip(np.where(whole != whole, 0.0, whole), float(low), float_high).astype(storage)
        return np.clip(values.astype(np.int64), low, high).astype(storage)

    return convert


def _float_store(to_bits: Callable[[Array], Array], storage: np.dtype) -> Callable[[Array], Array]:
    def convert(values: Array) -> Array:
        return to_bits(values.astype(np.float32, copy=False)).view(storage)

    return convert


_STORE: dict[DType, Callable[[Array], Array]] = {
    DType.F32: lambda values: values.astype(np.float32, copy=False),
    DType.F16: _float_store(f32_to_f16_bits, DType.F16.storage),
    DType.BF16: _float_store(f32_to_bf16_bits, DType.BF16.storage),
    DType.I32: _integer_store(-(2**31), 2**31 - 1, DType.I32.storage),
    DType.I8: _integer_store(-128, 127, DType.I8.storage),
    DType.U8: _integer_store(0, 255, DType.U8.storage),
    DType.BOOL: lambda values: (values != 0).astype(np.uint8),
    DType.I64: _integer_store(-(2**63), 2**63 - 1, DType.I64.storage),
    **{dtype: partial(encode, dtype=dtype) for dtype in NUMBERS},
}
