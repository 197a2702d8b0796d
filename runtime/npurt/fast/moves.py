"""Copies, fills, gathers and conversions as NumPy calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.abi.records import Step
from npurt.exec.dma import last_rows
from npurt.fast.context import Array, Call, Context
from npurt.fast.memory import decode_f16
from npurt.fast.ops import Convert, Copy, Fill, Gather, Scatter
from npurt.fast.refs import Plane, Ref
from npurt.fast.steps import Amount, Shift


def copy_calls(op: Copy, context: Context) -> list[Call]:
    """The calls of one copy."""
    memory = context.memory
    if op.whole:
        return _move(op, memory.view(op.src), memory.view(op.dst), context)
    rows = op.dst.shape[op.row_dim]
    dim = op.row_dim
    if isinstance(op.valid, int) and op.src_shift is None and op.dst_shift is None:
        source, target = memory.view(op.src), memory.view(op.dst)
        calls = _move(op, _part(source, dim, 0, op.valid), _part(target, dim, 0, op.valid), context)
        return [*calls, (_clear, (_part(target, dim, op.valid, rows),))] if op.clears else calls
    return [(_stepped(op, context), ())]


def _move(op: Copy, source: Array, target: Array, context: Context) -> list[Call]:
    """Elements from one view to another, with the conversion that their types need."""
    if op.src.plane is Plane.RAW and op.src.dtype in (DType.F16, DType.BF16):
        calls: list[Call] = [(_decode, (target, source, op.src.dtype))]
        return (
            calls
            if op.dst.dtype in (op.src.dtype, DType.F32)
            else [*calls, *context.rounding(target, target, op.dst.dtype)]
        )
    if op.src.dtype is op.dst.dtype or op.dst.dtype is DType.F32:
        return [(np.copyto, (target, source))]
    return context.rounding(source, target, op.dst.dtype)


def _decode(target: Array, source: Array, dtype: DType) -> None:
    if dtype is DType.F16 and source.flags.c_contiguous and target.flags.c_contiguous:
        decode_f16(source.view(np.uint16).reshape(-1), target.reshape(-1))
    else:
        target[...] = numerics.load(source, dtype)


def _stepped(op: Copy, context: Context) -> Callable[[], None]:
    """A copy whose places or count follow the step block: slices of views that hold all places."""
    dim, step = op.row_dim, context.step
    rows = op.dst.shape[dim]
    source, source_at = _all_places(op.src, dim, op.src_shift, context)
    target, target_at = _all_places(op.dst, dim, op.dst_shift, context)
    valid, clears = op.valid, op.clears
    lead = (slice(None),) * dim
    dst_dtype = op.dst.dtype
    converts = op.src.plane is Plane.RAW and op.src.dtype in (DType.F16, DType.BF16)
    rounds = (dst_dtype is not op.src.dtype and dst_dtype is not DType.F32) or (
        converts and dst_dtype not in (op.src.dtype, DType.F32)
    )

    def move() -> None:
        count = valid if isinstance(valid, int) else min(max(step[valid.step] + valid.plus, 0), valid.most)
        first = 0 if source_at is None else step[source_at]
        into = 0 if target_at is None else step[target_at]
        part, place = source[(*lead, slice(first, first + count))], target[(*lead, slice(into, into + count))]
        if converts:
            _decode(place, part, op.src.dtype)
        if rounds:
            context.round_now(place if converts else part, place, dst_dtype)
        elif not converts:
            np.copyto(place, part)
        if clears and count < rows:
            target[(*lead, slice(into + count, into + rows))] = 0

    return move


def _all_places(ref: Ref, dim: int, shift: Shift | None, context: Context) -> tuple[Array, Step | None]:
    """The view with as many rows as the largest shift reaches, and the field that says where to begin."""
    if shift is None:
        return context.memory.view(ref), None
    size = context.memory.raw[ref.base].size
    low, high = ref.hull
    extra = (
        shift.most
        if shift.stride == 0
        else min(shift.most, (size - high) // shift.stride if shift.stride > 0 else low // -shift.stride)
    )
    shape = (*ref.shape[:dim], ref.shape[dim] + max(extra, 0), *ref.shape[dim + 1 :])
    whole = Ref(ref.base, ref.plane, ref.dtype, ref.offset, shape, ref.stride)
    return context.memory.view(whole), shift.step


def _part(view: Array, dim: int, first: int, last: int) -> Array:
    return view[(*((slice(None),) * dim), slice(first, last))]


def _clear(view: Array) -> None:
    view[...] = 0


def fill_calls(op: Fill, context: Context) -> list[Call]:
    """The call of one fill."""
    word = np.array([op.bits, 0], "<u4").view(op.dst.dtype.storage)[:1]
    value = numerics.load(word, op.dst.dtype)[0] if op.dst.plane is not Plane.RAW else word[0]
    return [(np.copyto, (context.memory.view(op.dst), value))]


def gather_calls(op: Gather, context: Context) -> list[Call]:
    """The calls of one gather."""
    source, index, target = (context.memory.view(ref) for ref in (op.src, op.index, op.dst))
    dim = op.row_dim
    bound = source.shape[dim]

    def rows_of(places: Array) -> Array:
        chosen: Array = np.moveaxis(np.moveaxis(source, dim, 0)[places], 0, dim)
        return chosen

    def gather() -> None:
        if index.size and (int(index.min()) < 0 or int(index.max()) >= bound):
            inside = (index >= 0) & (index < bound)
            target[...] = rows_of(np.where(inside, index, 0))
            np.moveaxis(target, dim, 0)[~inside] = 0
        else:
            target[...] = rows_of(index)

    calls: list[Call] = [(gather, ())]
    if op.dst.dtype in (op.src.dtype, DType.F32):
        return calls
    return [*calls, *context.rounding(target, target, op.dst.dtype)]


def scatter_calls(op: Scatter, context: Context) -> list[Call]:
    """The call of one scatter."""
    source, target = (np.moveaxis(context.memory.view(ref), op.row_dim, 0) for ref in (op.src, op.dst))
    index, converts = context.memory.view(op.index), op.dst.dtype not in (op.src.dtype, DType.F32)

    def scatter() -> None:
        rows = last_rows(index, target.shape[0])
        values = source[rows]
        if converts:
            context.round_now(values, values, op.dst.dtype)
        target[index[rows]] = values

    return [(scatter, ())]


def convert_calls(op: Convert, context: Context) -> list[Call]:
    """The call of one conversion between planes."""
    low, high = op.src.hull
    memory = context.memory
    if op.src.plane is Plane.RAW:
        memory.shadow(op.dst.base, op.dst.plane)
        return [(memory.decode, (op.dst.base, op.dst.plane, low, high))]
    return [(memory.encode, (op.src.base, op.src.plane, low, high))]


def needs(op: Copy) -> Sequence[tuple[Ref, Shift, int | Amount]]:
    """The shifted sides of a copy and how many rows they touch there, for the check before a run."""
    sides = ((op.src, op.src_shift), (op.dst, op.dst_shift))
    clears = op.dst.shape[op.row_dim] if op.clears else op.valid
    return [(ref, shift, op.valid if ref is op.src else clears) for ref, shift in sides if shift is not None]
