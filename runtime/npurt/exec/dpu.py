"""Executes DPU records: exact matrix products with scale, table and clamp.

    r = round_f32(sum_l a[b, i, l] * b[b, j, l])            the exact sum, rounded once
    r = sum_g scale[j, g] * round_f32(sum of group g)       with SCALES, each step rounded to f32, g rising
    r = r * scale;  r = r * table[j].scale + table[j].bias;  r = clamp(r)      each step rounded to f32
    c = c + r where the record accumulates, then rounded to c's type

An integer product that goes into an integer result without scale, table and clamp keeps its int64 sum, saturated.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.abi.records import DPU, DPU_TABLE, DpuFlag
from npurt.exec.memory import Bases

Array = np.ndarray


class Workspace:
    """Room for the decoded operands of one task after the other: fresh large arrays cost more than the decoding."""

    def __init__(self) -> None:
        self._room = {"a": np.empty(0), "b": np.empty(0)}

    def __call__(self, operand: str, shape: tuple[int, ...]) -> Array:
        """A float64 array of that shape; its contents last until the next call for the same operand."""
        size = prod(shape)
        if self._room[operand].size < size:
            self._room[operand] = np.empty(size)
        return self._room[operand][:size].reshape(shape)


def prepare_dpu(record: np.void, bases: Bases, workspace: Workspace) -> Callable[[], None]:
    """A call that does what one record of npurt.abi.records.DPU says, on the memory behind `bases`."""
    fields = dict(zip(DPU.names or (), record.tolist(), strict=True))
    flags = DpuFlag(fields["flags"])
    swapped = DpuFlag.B_KN in flags
    m, n, k = fields["m"], fields["n"], fields["k"]
    a, a_type = _matrix(fields, "a", m, k, bases)
    b, b_type = _matrix(fields, "b", *((k, n) if swapped else (n, k)), bases)
    numbers = _numbers_of(b_type, fields["b_zero"], floats=DType(fields["a_type"]).is_float)
    scales = _scales(fields, n, k, bases) if DpuFlag.SCALES in flags else None
    c, c_type = _matrix(fields, "c", m, n, bases)
    floats = a_type.is_float
    finish = _finisher(fields, flags, n, bases)
    adds = DpuFlag.ACCUMULATE in flags
    keeps_integer = finish is None and scales is None and not floats and not c_type.is_float

    def multiply() -> None:
        left = numerics.load_f64(a, a_type, workspace("a", a.shape)) if floats else numerics.load(a, a_type)
        if numbers is not None:
            right = numbers[numerics.unpack_codes(b.view(np.uint8), b_type.bits)]
        else:
            right = numerics.load_f64(b, b_type, workspace("b", b.shape)) if floats else numerics.load(b, b_type)
        if scales is None:
            result = numerics.mma_exact(left, right, b_kn=swapped)
        else:
            result = numerics.mma_scaled(left, right, scales(), fields["group"] or max(k, 1))
        if not keeps_integer:
            result = result.astype(np.float32, copy=False)
        if finish is not None:
            result = finish(result)
        if adds:
            result = numerics.load(c, c_type) + result
        c[...] = numerics.store(result, c_type)

    return multiply


def _matrix(fields: dict[str, int], name: str, height: int, width: int, bases: Bases) -> tuple[Array, DType]:
    """View [batch, height, width] of one operand, batch 1 where all share it; elements of a row are adjacent."""
    dtype = DType(fields[f"{name}_type"])
    memory, offset = bases(fields[f"{name}_base"], fields[f"{name}_offset"])
    if dtype.packed:  # only b; rows of bytes
        width = width * dtype.bits // 8
    stride = (fields[f"{name}_batch"], fields[f"{name}_stride"], max(dtype.nbytes, 1))
    batch = min(fields["batch"], 1) if name != "c" and stride[0] == 0 else fields["batch"]
    return np.ndarray((batch, height, width), dtype.storage, memory, offset, stride), dtype


def _numbers_of(dtype: DType, zero: int, floats: bool) -> Array | None:
    """The number that each code of b stands for, float64 or int32; None where b is read as plain elements."""
    if dtype in (DType.I8, DType.U8):
        if not (floats or zero):
            return None
        codes = np.arange(256, dtype=np.uint8)
        numbers = numerics.load(codes.view(dtype.storage), dtype)
    elif dtype.packed:
        numbers = numerics.NUMBERS[dtype]
    else:
        return None
    shifted: Array = numbers.astype(np.float64 if floats else np.int32) - zero
    return shifted


def _scales(fields: dict[str, Any], n: int, k: int, bases: Bases) -> Callable[[], Array]:
    """Reads the scales, float32 [n, groups]."""
    dtype = DType(fields["scale_type"])
    count = -(-k // (fields["group"] or max(k, 1)))
    memory, offset = bases(fields["table_base"], fields["table_offset"])
    stored: Array = np.ndarray((n, count), dtype.storage, memory, offset, (fields["table_stride"], dtype.nbytes))
    return lambda: numerics.load(stored, dtype)


def _finisher(fields: dict[str, float], flags: DpuFlag, n: int, bases: Bases) -> Callable[[Array], Array] | None:
    """What happens to the rounded sums, float32 [batch, m, n]; None where nothing does."""
    scale = np.float32(fields["scale"])
    scales, has_table, clamps = scale != 1, DpuFlag.TABLE in flags, DpuFlag.CLAMP in flags
    if not (scales or has_table or clamps):
        return None
    low, high = np.float32(fields["clamp_lo"]), np.float32(fields["clamp_hi"])
    table: Array | None = None
    if has_table:
        memory, offset = bases(int(fields["table_base"]), int(fields["table_offset"]))
        table = np.ndarray((n,), DPU_TABLE, memory, offset)

    def finish(result: Array) -> Array:
        if scales:
            result = result * scale
        if table is not None:
            result = result * table["scale"] + table["bias"]
        return np.minimum(np.maximum(result, low), high) if clamps else result

    return finish
