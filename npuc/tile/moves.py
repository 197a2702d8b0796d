"""Loads, stores and fills as DMA tasks, or as no task where a tile can be read or written in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from npuc.tasks import CopyOp, FillOp, StepValue
from npuc.tile.errors import Loc
from npuc.tile.template import IN, OUT
from npuc.tile.trace import Fill, Gather, Load, Memory, Mma, Store, Value, Vector, touched
from npuc.tile.views import View
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType
from npurt.shave.rules import permutation

if TYPE_CHECKING:
    from npuc.tile.lower import Lowering

MOVES = (Op.RESHAPE, Op.TRANSPOSE, Op.SLICE, Op.COPY)  # operations that a strided view can often express


def lower_load(low: Lowering, op: Load) -> None:
    """On-chip: the array itself is the tile's home. DDR: a transfer, put off where the tile is only stored again."""
    view = low.view(op.memory).part(op.index, op.out.shape)
    if view.on_chip:
        low.homes[op.out.id] = view
        low.arrays[op.out.id] = op.out
        return
    low.made_by_task(op.out, view)
    low.transfers[op.out.id] = op
    if not only_stored(low, op.out, view, op):
        fetch(low, op.out)


def fetch(low: Lowering, value: Value) -> None:
    """Brings a tile that is still in DDR into a local buffer."""
    load = low.transfers.pop(value.id)
    buffer = low.buffer(f"{low.name(load.memory)}{value.id}", value.dtype, value.shape, load.loc)
    source = low.homes[value.id]
    low.homes[value.id] = buffer
    emit_copy(low, source, buffer, load, None)


def lower_store(low: Lowering, op: Store) -> None:
    """From a home: a transfer. From a register: written in place by SHAVE on-chip, through a buffer to DDR."""
    destination = low.view(op.memory).part(op.index, op.value.shape)
    low.check_condition(op.value, op.loc)
    home = low.homes.get(op.value.id)
    in_register = low.fragment is not None and op.value.id in low.fragment.registers
    movable = home is not None and dma_converts(home.dtype, destination.dtype) and not home.meets(destination)
    if home is not None and movable and not in_register:
        load = low.transfers.get(op.value.id)
        if load is not None and not one_transfer(load, op):
            fetch(low, op.value)
            load, home = None, low.homes[op.value.id]
        emit_copy(low, home, destination, load, op)
        return
    low.register(op.value, op.loc)
    fragment = low.opened(op.loc)
    if destination.on_chip and op.valid is None:
        low.protect(destination, op.loc)
        fragment.store(op.value, destination)
        if destination.dtype is op.value.dtype and op.value.id in fragment.values:
            low.backing[op.value.id] = destination
    else:
        low.await_store(op.value, destination, op)
    low.close_if_done()


def adjacent(low: Lowering, view: View, what: str, loc: Loc) -> View:
    """The view itself, or where the elements of its rows do not lie side by side, as the engine needs, a dense copy."""
    if view.rows_adjacent:
        return view
    buffer = low.buffer(f"{what}.copy", view.dtype, view.shape, loc)
    low.emit(OUT, CopyOp(), (view,), (buffer,), f"copy {what}", loc)
    return buffer


def lower_fill(low: Lowering, op: Fill) -> None:
    """A constant into a whole local array."""
    bits = int(np.float32(op.value).view(np.uint32))
    low.emit(OUT, FillOp(bits), (), (low.view(op.memory),), f"fill {low.name(op.memory)}", op.loc)


def emit_copy(low: Lowering, source: View, destination: View, load: Load | None, store: Store | None) -> None:
    """One transfer. load, store: the ends that reach an array, with their runtime extents and offsets."""
    ends = [end for end in (load, store) if end is not None]
    row_dim = next((end.axis for end in ends if end.valid is not None or _shift(end) is not None), 0)
    valid = next((end.valid for end in ends if end.valid is not None), None)
    step = None if valid is None or valid.step_field is None else StepValue(valid.step_field, valid.const)
    op = CopyOp(
        row_dim=row_dim,
        valid=step,
        shift_src=None if load is None else _shift(load),
        shift_dst=None if store is None else _shift(store),
    )
    name = low.name(ends[-1].memory)
    stage = f"{'load' if store is None else 'store'} {name}"
    valid_add = valid.without_step() if valid is not None and valid.without_step().terms else None
    low.emit(OUT if source.on_chip else IN, op, (source,), (destination,), stage, ends[-1].loc, valid_add)


def as_view(low: Lowering, op: Vector) -> bool:
    """Takes over an operation that only changes how memory is read."""
    if not op.args:
        return False
    source = op.args[0]
    home = low.homes.get(source.id)
    if home is None or (low.fragment is not None and source.id in low.fragment.registers):
        return False
    view = moved_view(op, home)
    if view is None and converts_exactly(low, op):
        view = home if only_stored(low, op.out, home, low.transfers.get(source.id)) else None
    if view is None:
        return False
    low.check_condition(source, op.loc)
    low.homes[op.out.id] = view
    if source.id in low.transfers:
        low.transfers[op.out.id] = low.transfers[source.id]
    if source.id in low.arrays:
        low.arrays[op.out.id] = op.out
    low.conditions.shown(op.out, source)
    return True


def only_stored(low: Lowering, value: Value, view: View, load: Load | None) -> bool:
    """Whether a tile at `view` is used by nothing but stores that one strided transfer each can do.

    load: the load from DDR that the tile comes from, None where it lies on-chip.
    """
    plain = load is None or (load.valid is None and _shift(load) is None)
    for position in low.uses.get(value.id, ()):
        match low.ops[position].op:
            case Store() as store:
                if not dma_converts(view.dtype, store.memory.type.dtype):
                    return False
                if load is not None and not (one_transfer(load, store) and _unchanged(low, load.memory, position)):
                    return False
            case Vector() as move if move.op in MOVES:
                if not plain:
                    return False
                shown = moved_view(move, view)
                if shown is None or not only_stored(low, move.out, shown, load):
                    return False
            case Vector(op=Op.CAST | Op.ROUND_F16 | Op.ROUND_BF16) as cast:
                if not (converts_exactly(low, cast) and only_stored(low, cast.out, view, load)):
                    return False
            case _:
                return False
    return True


def only_use(low: Lowering, value: Value) -> int | None:
    """The position of the one operation, under the current condition, that reads `value`."""
    users = low.uses.get(value.id, [])
    return users[0] if len(users) == 1 and low.ops[users[0]].when is low.when else None


def stored_in_place(
    low: Lowering, value: Value, dtype: DType, shape: tuple[int, ...], reads: Sequence[View]
) -> View | None:
    """Where in an on-chip array a task may write `value` at once, instead of a copy at its only use, a store.

    dtype: what the task makes, rounded to the array's type only if it is f32. shape: of the view that it writes.
    reads: what it reads, which it may not write. The store counts as done then. None where the array is in DDR, or
    touched between here and the store.
    """
    position = only_use(low, value)
    store = None if position is None else low.ops[position].op
    if position is None or not isinstance(store, Store) or store.valid is not None:
        return None
    array = store.memory.type
    if not array.on_chip or not (array.dtype is dtype or (dtype is DType.F32 and array.dtype.is_float)):
        return None
    if any(touched(recorded.op) == store.memory for recorded in low.ops[low.position + 1 : position]):
        return None
    view = low.view(store.memory).part(store.index, store.value.shape).reshaped(shape)
    if view is None or not view.rows_adjacent or any(view.meets(read) for read in reads):
        return None
    low.folded.add(position)
    return view


def only_multiplied(low: Lowering, value: Value) -> bool:
    """Whether a tile, or a changed shape of it, is used by nothing but matrix products, which read views of memory."""
    users = [low.ops[position].op for position in low.uses.get(value.id, ())]
    return all(
        isinstance(user, Mma) or (isinstance(user, Vector) and user.op in MOVES and only_multiplied(low, user.out))
        for user in users
    )


def converts_exactly(low: Lowering, op: Vector) -> bool:
    """Whether a cast can be left to the transfers that store its result: they round once, to their array's type."""
    if op.op is Op.CAST:
        return op.out.dtype is DType.F32 and op.args[0].dtype.is_float
    stores = [low.ops[position].op for position in low.uses.get(op.out.id, ())]
    return op.op in (Op.ROUND_F16, Op.ROUND_BF16) and all(
        isinstance(store, Store) and store.memory.type.dtype is op.out.dtype for store in stores
    )


def moved_view(op: Vector, home: View) -> View | None:
    """The view that shows what a change of shape makes of `home`, or None where no strides can say that."""
    match op.op:
        case Op.RESHAPE:
            return home.reshaped(op.out.shape)
        case Op.TRANSPOSE:
            return home.transposed(permutation(op.imm, len(op.out.shape)))
        case Op.SLICE:
            return home.sliced(op.axis, op.imm, op.out.shape[op.axis])
        case Op.COPY:
            return home.broadcast(op.out.shape)
        case Op.UNPACK if home.rows_adjacent and not DType(op.imm).packed:
            return replace(
                home, dtype=DType(op.imm), shape=op.out.shape, stride=(*home.stride[:-1], DType(op.imm).nbytes)
            )
    return None


def dma_converts(source: DType, destination: DType) -> bool:
    """The DMA engine copies any type and converts among floats."""
    return source is destination or (source.is_float and destination.is_float)


def one_transfer(load: Load, store: Store) -> bool:
    """Whether DDR to array is one task; a store's runtime extent leaves rows untouched, which takes a second."""
    runtime = load.valid is not None or _shift(load) is not None
    return store.valid is None and (_shift(store) is None or not runtime or load.axis == store.axis)


def _shift(end: Load | Store) -> str | None:
    return next((first.step_field for first in end.index if first.step_field is not None), None)


def _unchanged(low: Lowering, memory: Memory, until: int) -> bool:
    """Whether nothing between here and position `until` writes the array that a postponed load reads."""
    between = (recorded.op for recorded in low.ops[low.position + 1 : until])
    return not any(touched(op) == memory for op in between if not isinstance(op, (Load, Gather)))
