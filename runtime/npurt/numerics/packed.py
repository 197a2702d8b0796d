"""Elements of any type in plain bytes: several codes in one, or several bytes for one.

The order is that of ONNX and onnxruntime: the first code of a byte in its low bits, rows from a fresh byte; elements of
whole bytes little-endian.
"""

from __future__ import annotations

import numpy as np

from npurt.abi.dtypes import DType
from npurt.numerics.codecs import load
from npurt.numerics.formats import NUMBERS, encode

Array = np.ndarray


def unpack_codes(packed: Array, bits: int) -> Array:
    """uint8 codes [..., bytes * 8 / bits] of uint8 [..., bytes], bits 2, 4 or 8."""
    if bits == 8:
        return packed
    per_byte, mask = 8 // bits, np.uint8((1 << bits) - 1)
    codes = np.empty((*packed.shape, per_byte), np.uint8)
    for place in range(per_byte):
        np.bitwise_and(packed >> np.uint8(place * bits), mask, out=codes[..., place])
    return codes.reshape(*packed.shape[:-1], packed.shape[-1] * per_byte)


def pack_codes(codes: Array, bits: int) -> Array:
    """The inverse of `unpack_codes`; a last byte that is not full gets zeros."""
    per_byte = 8 // bits
    spare = -codes.shape[-1] % per_byte
    filled = np.pad(codes.astype(np.uint8), [(0, 0)] * (codes.ndim - 1) + [(0, spare)])
    places = filled.reshape(*codes.shape[:-1], -1, per_byte)
    packed = np.zeros(places.shape[:-1], np.uint8)
    for place in range(per_byte):
        packed |= places[..., place] << np.uint8(place * bits)
    return packed


def elements(count: int, dtype: DType) -> int | None:
    """How many elements of a type so many bytes hold; None where the last one would be cut."""
    return None if count * 8 % dtype.bits else count * 8 // dtype.bits


def unpack(packed: Array, dtype: DType) -> Array:
    """The elements that bytes (uint8, or int32 from 0 to 255) [..., bytes] hold, widened exactly as `load` does."""
    plain = packed.astype(np.uint8, copy=False)
    if dtype.packed:
        numbers: Array = NUMBERS[dtype][unpack_codes(plain, dtype.bits)]
        return numbers
    return load(np.ascontiguousarray(plain).view(dtype.storage), dtype)


def pack(values: Array, dtype: DType) -> Array:
    """Numbers encoded in a type of at most 8 bits, as bytes [..., bytes]."""
    return pack_codes(encode(values, dtype), dtype.bits)
