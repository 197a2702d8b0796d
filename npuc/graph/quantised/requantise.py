"""Weights quantised again with one scale for each output channel, where the user asks for it.

Scales of groups do not fit the table of a matrix engine of this class, so that each group is a product of its own. One
scale a channel makes products of many rows about twice as fast, and changes the numbers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from npuc.graph.quantised.codes import bytes_of
from npuc.graph.quantised.packed import PackedForm
from npurt.numerics import pack_codes, unpack_codes

FEWEST_BITS = 4  # codes of fewer bits get 4, which matrix engines take


def per_channel(form: PackedForm) -> PackedForm:
    """The same weight with one scale for each channel; codes are symmetric about the middle one.

    The largest magnitude of a channel gets the largest code, others the nearest one, halves the even one.
    """
    bits = max(form.bits, FEWEST_BITS)
    middle = 1 << (bits - 1)

    def scales() -> np.ndarray:
        largest = np.abs(numbers(form)).max(axis=1, keepdims=True)
        step = np.where(largest > 0, largest / np.float32(middle - 1), np.float32(1))
        return np.asarray(step, form.scale_type.numpy())

    def codes() -> np.ndarray:
        found = np.rint(numbers(form) / scales().astype(np.float32))
        return pack_codes((np.clip(found, -middle, middle - 1) + middle).astype(np.uint8), bits)

    def zeros() -> np.ndarray:
        return np.full((1, 1), middle, np.float32)

    return replace(form, bits=bits, block=form.k, code_bytes=bytes_of(form.k, bits), zero_rows=1, codes=codes,
                   scales=scales, zeros=zeros)  # fmt: skip


def numbers(form: PackedForm) -> np.ndarray:
    """float32 [n, k]."""
    group = np.arange(form.k) // form.block
    codes = unpack_codes(form.codes(), form.bits)[:, : form.k].astype(np.float32)
    found: np.ndarray = (codes - form.zeros()[:, group]) * form.scales().astype(np.float32)[:, group]
    return found


def dense(form: PackedForm, kind: ir.DataType, turned: bool) -> ir.TensorProtocol:
    """A tensor of the numbers, [k, n] if turned, that computes them each time that they are read."""
    shape = ir.Shape((form.k, form.n) if turned else (form.n, form.k))

    def read() -> ir.TensorProtocol:
        found = numbers(form).astype(kind.numpy())
        return ir.Tensor(np.ascontiguousarray(found.T if turned else found), kind, shape=shape)

    return ir.LazyTensor(read, kind, shape, cache=False)
