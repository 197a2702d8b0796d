"""One task as the fields of its record: operands, strides, predicates and what the step block patches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npuc.emit.bases import STEP, STEP_FIELDS, BaseTable
from npuc.emit.errors import EmitError
from npuc.emit.pool import ConstPlan
from npuc.tasks.graph import Buffer, CallOp, CopyOp, FillOp, GatherOp, MmaOp, Region, Role, ScatterOp, Task, When
from npurt.abi.blob import Reloc
from npurt.abi.dtypes import DType
from npurt.abi.records import MAX_RANK, NO_BASE, DmaOp, DpuFlag, Predicate, Queue

Row = tuple[Any, ...]
NO_CONST = -1
MAX_FLAG_OFFSET = 2**31 - 1
_NOTHING = (NO_BASE, 0, NO_CONST)
_ABOVE = {"n_past": Predicate.PAST_GT, "n_new": Predicate.NEW_GT}
_RANGES = {"n_past": Predicate.PAST_IN, "n_new": Predicate.NEW_IN}


@dataclass
class Locate:
    """Finds base, byte offset and constant of a region in one entry."""

    bases: BaseTable
    consts: ConstPlan
    offsets: Mapping[Buffer, int]
    entry: str

    def __post_init__(self) -> None:
        self._known: dict[Buffer, tuple[int, int, int]] = {}

    def __call__(self, region: Region) -> tuple[int, int, int]:
        """(base row, byte offset, constant's index or -1) of the region's first element."""
        found = self._known.get(region.buffer)
        if found is None:
            const = self.consts.index(region.buffer) if region.buffer.role is Role.CONST else NO_CONST
            found = self._known[region.buffer] = (*self.bases.of(region.buffer, self.offsets, self.entry), const)
        base, offset, const = found
        return base, offset + region.offset, const

    def refuse(self, task: Task, what: str) -> EmitError:
        origin = task.origin
        return EmitError(f"entry {self.entry}, node {origin.node}, kernel {origin.kernel}{list(origin.coord)}: {what}")


def predicate(task: Task, locate: Locate) -> tuple[int, int, int]:
    """pred, pred_value and pred_base. EmitError where a record cannot say it."""
    if task.flag is None:
        return (Predicate.ALWAYS, 0, 0) if task.when is None else _of_step(task.when)
    if task.when is not None or len(task.flag.reads) != 1:
        raise locate.refuse(
            task, f"{len(task.flag.reads)} flags{'' if task.when is None else ' and a step predicate'}, "
            "a record has one predicate"
        )  # fmt: skip
    flag = task.reads[task.flag.reads[0]]
    base, offset, const = locate(flag)
    if flag.dtype is not DType.I32 or flag.elements != 1 or const != NO_CONST or offset > MAX_FLAG_OFFSET:
        raise locate.refuse(
            task, f"the flag {flag.dtype.label}{list(flag.shape)} at byte {offset} of {flag.buffer.name}: "
            "one int32 in the first 2 GiB of memory that tasks write was expected"
        )  # fmt: skip
    return Predicate.FLAG_NZ if task.flag.taken else Predicate.FLAG_Z, offset, base


def _of_step(when: When) -> tuple[int, int, int]:
    if when.most is None:
        return _ABOVE[when.field], when.above, 0
    return _RANGES[when.field], when.above, max(when.most - when.above, 0)


Move = CopyOp | FillOp | GatherOp | ScatterOp


def dma_row(task: Task, op: Move, queue: Queue, locate: Locate) -> tuple[Row, tuple[int, ...]]:
    """Fields of DMA before the barriers, and the constants of src, dst and index.

    A step-dependent field holds its value for a step field of 0. size: what is moved; the side whose rows are chosen
    has index_bound rows.
    """
    dst = task.writes[0]
    rank = dst.rank
    if rank > MAX_RANK or any(region.rank > MAX_RANK for region in task.reads):
        raise locate.refuse(task, f"a copy of rank {rank}, a DMA record has {MAX_RANK} dimensions")
    size = _places(task.reads[0].shape if isinstance(op, ScatterOp) else dst.shape, 1)
    src_base, src_offset, src_const = _NOTHING
    index_base, index_offset, index_const = _NOTHING
    src_type, src_stride = DType(dst.dtype), (0,) * MAX_RANK
    row_dim = MAX_RANK - max(rank, 1)
    valid = index_bound = fill = 0
    if isinstance(op, FillOp):
        code, fill = DmaOp.FILL, op.bits
    else:
        src = task.reads[0]
        src_base, src_offset, src_const = locate(src)
        src_type, src_stride = src.dtype, _places(src.stride, 0)
        if isinstance(op, (GatherOp, ScatterOp)):
            code, index_bound = DmaOp.GATHER if isinstance(op, GatherOp) else DmaOp.SCATTER, op.bound
            row_dim += op.row_dim
            index_base, index_offset, index_const = locate(_index(task, op, locate))
        else:
            code = DmaOp.COPY
            flags = 0 if task.flag is None else len(task.flag.reads)
            if len(task.reads) - flags != 1 or len(task.writes) != 1:
                raise locate.refuse(task, f"a copy of {len(task.writes)} regions at once, a DMA record holds one")
            if src.shape != dst.shape:
                raise locate.refuse(task, f"copy of {list(src.shape)} to {list(dst.shape)}: shapes must be equal")
            if op.layout:
                raise locate.refuse(task, f"copy with layout {op.layout!r}, a DMA record has none")
            row_dim += op.row_dim
            if op.valid is not None:
                valid = min(max(op.valid.add, 0), size[row_dim])
    if not (isinstance(op, CopyOp) and op.valid is not None):
        valid = size[row_dim]
    dst_base, dst_offset, dst_const = locate(dst)
    pred, pred_value, pred_base = predicate(task, locate)
    row = (
        code, queue, row_dim, pred, src_type, dst.dtype, 0, pred_value, pred_base, src_base, dst_base, index_base,
        src_offset, dst_offset, index_offset, size, src_stride, _places(dst.stride, 0), valid, index_bound, fill,
    )  # fmt: skip
    return row, (src_const, dst_const, index_const)


def _index(task: Task, op: GatherOp | ScatterOp, locate: Locate) -> Region:
    """The index vector. EmitError where it does not fit the rows on both sides."""
    src, dst, index = task.reads[0], task.writes[0], task.reads[1]
    moved = dst if isinstance(op, GatherOp) else src
    chosen = (*moved.shape[: op.row_dim], op.bound, *moved.shape[op.row_dim + 1 :])
    word = "gather" if isinstance(op, GatherOp) else "scatter"
    fits = {src.shape, dst.shape} <= {moved.shape, chosen} and (src.shape if moved is dst else dst.shape) == chosen
    if not fits or index.shape != moved.shape[op.row_dim : op.row_dim + 1] or not _adjacent(index):
        raise locate.refuse(
            task, f"{word} of {list(src.shape)} by index {list(index.shape)} into {list(dst.shape)}: "
            "rows must agree and the index must be a contiguous vector"
        )  # fmt: skip
    return index


def step_patches(task: Task) -> Iterator[tuple[int, str, int]]:
    """(relocation type, step field, addend of STEP_VALID) of each field that the step block patches."""
    if isinstance(task.op, CopyOp):
        if task.op.shift_src is not None:
            yield Reloc.STEP_SRC, task.op.shift_src, 0
        if task.op.shift_dst is not None:
            yield Reloc.STEP_DST, task.op.shift_dst, 0
        if task.op.valid is not None:
            yield Reloc.STEP_VALID, task.op.valid.field, task.op.valid.add


def dpu_row(task: Task, op: MmaOp, locate: Locate) -> tuple[Row, tuple[int, ...]]:
    """Fields of DPU before the barriers, and the constants of a, b, c and table."""
    a, b, c = task.reads[0], task.reads[1], task.writes[0]
    m, n, k = c.shape[-2], c.shape[-1], a.shape[-1]
    batch = c.shape[0] if c.rank == 3 else 1
    b_type = op.codes or b.dtype
    row = k if op.codes is None else k * b_type.bits // 8
    wanted = {"a": (a, (m, k)), "b": (b, (k, n) if op.b_kn else (n, row)), "c": (c, (m, n))}
    for name, (region, matrix) in wanted.items():
        if region.shape not in (matrix, (batch, *matrix)):
            raise locate.refuse(task, f"operand {name} is {list(region.shape)}, {list(matrix)} was expected")
        if not _adjacent(region):
            raise locate.refuse(
                task, f"operand {name} has strides {list(region.stride)}: elements of a row must be adjacent"
            )
    flags = (DpuFlag.ACCUMULATE if op.accumulate else 0) | (DpuFlag.B_KN if op.b_kn else 0)
    table_base, table_offset, table_const = _NOTHING
    if op.table:
        flags |= DpuFlag.TABLE
        table_base, table_offset, table_const = locate(task.reads[2])
    scale_type, table_stride = 0, 0
    if op.scales:
        flags |= DpuFlag.SCALES
        scales = task.reads[2]
        if not _adjacent(scales):
            raise locate.refuse(task, f"scales have strides {list(scales.stride)}: those of a channel must be adjacent")
        table_base, table_offset, table_const = locate(scales)
        scale_type, table_stride = scales.dtype, scales.stride[0]
    clamp_lo, clamp_hi = op.clamp or (0.0, 0.0)
    if op.clamp is not None:
        flags |= DpuFlag.CLAMP
    (a_base, a_offset, a_const), (b_base, b_offset, b_const) = locate(a), locate(b)
    c_base, c_offset, c_const = locate(c)
    record = (
        flags, a.dtype, b_type, c.dtype, *predicate(task, locate), scale_type, op.zero,
        a_base, b_base, c_base, table_base,
        a_offset, b_offset, c_offset, table_offset, batch, m, n, k, a.stride[-2], b.stride[-2], c.stride[-2],
        _batch_stride(a), _batch_stride(b), _batch_stride(c), op.scale, clamp_lo, clamp_hi, op.group, table_stride,
    )  # fmt: skip
    return record, (a_const, b_const, c_const, table_const)


def shave_args(task: Task, op: CallOp, locate: Locate) -> tuple[list[Row], list[tuple[int]]]:
    """Rows of SHAVE_ARG and the constant of each. A step field is a pointer into the step block."""
    rows: list[Row] = []
    consts: list[tuple[int]] = []
    for kind, value in op.args:
        if kind == "i":
            rows.append((NO_BASE, value, 0))
            consts.append((NO_CONST,))
            continue
        if kind == "s":
            base, offset, const = STEP, STEP_FIELDS[str(value)] * 4, NO_CONST
        else:
            base, offset, const = locate((task.reads if kind == "r" else task.writes)[int(value)])
        rows.append((base, 0, offset))
        consts.append((const,))
    return rows, consts


def _places(values: tuple[int, ...], neutral: int) -> tuple[int, ...]:
    return (neutral,) * (MAX_RANK - len(values)) + values


def _adjacent(region: Region) -> bool:
    return region.shape[-1] <= 1 or region.stride[-1] == region.dtype.nbytes


def _batch_stride(region: Region) -> int:
    return region.stride[0] if region.rank == 3 else 0
