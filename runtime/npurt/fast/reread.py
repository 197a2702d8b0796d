"""Pass before the planes are settled: a product whose operand b lies as floats among copied bytes of constants.

Rows of codes hold their shifts as floats, and one copy of bytes brings both on the chip. The operand becomes one of
codes that are two or four bytes long, so that the copy is not needed and nothing is converted in a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npurt.abi.dtypes import DType
from npurt.fast.cells import Cells
from npurt.fast.codes import Codes
from npurt.fast.ops import Copy, Mma, Op
from npurt.fast.refs import Plane, Ref, raw, through


def reread(ops: Sequence[Op], constant: int) -> None:
    """Replaces operands in place."""
    if not any(_of_bytes(op, constant) for op in ops):
        return
    cells = Cells(ops, constant)
    writer = cells.track(-1, np.int32)
    for number, op in enumerate(ops):
        if isinstance(op, Mma) and op.codes is None and not op.kn and op.b.base != constant and op.c.shape[0] == 1:
            last = np.unique(writer.at(raw(op.b)))
            copy = ops[int(last[0])] if last.size == 1 and last[0] >= 0 else None
            if isinstance(copy, Copy) and _of_bytes(copy, constant) and copy.pred in (None, op.pred):
                _read_bytes(op, copy)
        for access in op.writes:
            writer.put(raw(access.ref), number)


def _of_bytes(op: Op, constant: int) -> bool:
    """Whether a task copies bytes of constants, all of them."""
    return isinstance(op, Copy) and op.src.base == constant and op.src.dtype is DType.U8 is op.dst.dtype and op.whole


def _read_bytes(op: Mma, copy: Copy) -> None:
    """Lets operand b be the bytes of the constants behind the copy."""
    ref, width = op.b, op.b.shape[-1]
    shape, stride = (*ref.shape[:-1], width * ref.dtype.nbytes), (*ref.stride[:-1], 1)
    found = through(copy.dst, copy.src, Ref(ref.base, Plane.RAW, DType.U8, ref.offset, shape, stride))
    if found is not None and ref.stride[-1] == ref.dtype.nbytes:
        op.put("b", found.ref)
        op.codes = Codes(ref.dtype, width, 0, width, DType.F32, None)
        op.changed()
