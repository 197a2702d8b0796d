"""Matrix products as DPU tasks: operands as the engine reads them, and the place where its result goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from npuc.tasks import MmaOp
from npuc.tile.errors import KernelError
from npuc.tile.moves import adjacent, only_use, stored_in_place
from npuc.tile.template import DPU
from npuc.tile.trace import Mma, Store, Value, Vector
from npuc.tile.views import View
from npurt.abi.bytecode import Op
from npurt.abi.dtypes import DType

if TYPE_CHECKING:
    from npuc.tile.lower import Lowering


def lower_mma(low: Lowering, op: Mma) -> None:
    """One DPU task. An operand whose rows have gaps between elements is first copied, which the plan shows."""
    a, b = (adjacent(low, low.settle(v, op.loc), what, op.loc) for v, what in ((op.a, "a"), (op.b, "b")))
    channels = op.table if op.scales is None else op.scales
    table = () if channels is None else (adjacent(low, low.settle(channels, op.loc), "table", op.loc),)
    if op.acc is not None:
        destination = low.view(op.acc)
        if any(read.meets(destination) for read in (a, b, *table)):
            raise KernelError("an accumulator cannot be an operand of its own product; copy it to scratch", op.loc)
    else:
        assert op.out is not None
        destination = _destination(low, op, op.out, (a, b, *table))
    if len(destination.shape) == 3:
        a, b = (_batched(view, destination.shape[0]) for view in (a, b))
    scaled = op.scales is not None
    kind = MmaOp(op.accumulate, op.b_kn, op.table is not None, op.scale, op.clamp, op.codes, op.zero, scaled, op.group)
    reads = (a, b, *table, *((destination,) if op.accumulate else ()))
    low.emit(DPU, kind, reads, (destination,), "mma", op.loc)


def _batched(view: View, batches: int) -> View:
    """An operand with the batch dimension of the result; one matrix for all batches repeats with stride 0."""
    if len(view.shape) == 2 or view.shape[0] != batches:
        matrix = view if len(view.shape) == 2 else replace(view, shape=view.shape[1:], stride=view.stride[1:])
        return replace(matrix, shape=(batches, *matrix.shape), stride=(0, *matrix.stride))
    return view


def _destination(low: Lowering, op: Mma, out: Value, reads: Sequence[View]) -> View:
    """Where the DPU writes: the array that the product is stored into, else a local buffer.

    A cast, reshapes and the store are followed while the product has no other use: the DPU rounds once to the type of
    its destination, and a reshaped destination is another view of the same bytes.
    """
    value, dtype = out, out.dtype
    while (position := only_use(low, value)) is not None:
        user = low.ops[position].op
        if isinstance(user, Store):
            stored = stored_in_place(low, value, dtype, out.shape, reads)
            if stored is not None:
                return stored
            if dtype is DType.F32 and user.memory.type.dtype.is_float:
                dtype = user.memory.type.dtype  # the DPU rounds, the transfer only moves
            break
        if not isinstance(user, Vector) or not _follows(user, dtype):
            break
        value = user.out
        dtype = dtype if user.op is Op.RESHAPE else user.out.dtype
        low.folded.add(position)
    buffer = low.buffer(f"mma{out.id}", dtype, out.shape, op.loc)
    home = buffer.reshaped(value.shape)
    assert home is not None  # a dense buffer can be seen in any shape
    low.made_by_task(value, home)
    return buffer


def _follows(op: Vector, dtype: DType) -> bool:
    return op.op is Op.RESHAPE or (op.op in (Op.ROUND_F16, Op.ROUND_BF16) and dtype is DType.F32)
