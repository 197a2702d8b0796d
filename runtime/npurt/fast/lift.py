"""From the records of an entry to the tasks that the link passes work on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npurt.abi.bytecode import ArgMode
from npurt.abi.bytecode import Op as Code
from npurt.abi.dtypes import DType
from npurt.abi.records import FLAGS, NO_BASE, PREDICATE_FIELDS, RANGES, BaseKind, DmaOp, DpuFlag, Queue, Step
from npurt.abi.records import Predicate as PredicateCode
from npurt.fast.cells import Cells
from npurt.fast.codes import Codes
from npurt.fast.memory import Memory
from npurt.fast.ops import Call, Copy, Exact, Fill, Gather, Mma, Op, Scatter
from npurt.fast.refs import Plane, Ref, make_ref, plane_of, raw, spread
from npurt.fast.steps import Amount, FlagPredicate, Predicate, Shift
from npurt.image import Entry, Image, StepPatch, TaskRef
from npurt.shave.program import Program

_MOVED = (DType.F16, DType.BF16, DType.F32)  # types that copies convert among
_TABLE_ROW = 8  # bytes of DPU_TABLE


class LinkError(Exception):
    """An entry that the prepared form cannot run; the message says why. It runs in exact mode then."""


def lift(image: Image, entry: Entry, memory: Memory) -> list[Op]:
    """The tasks of an entry, in an order that its queues and barriers allow. Errors: LinkError."""
    lifter = _Lifter(image, entry, memory)
    ops = [lifter.op(task) for task in entry.tasks]
    _number_flags(ops, memory.constant)
    return ops


class _Lifter:
    def __init__(self, image: Image, entry: Entry, memory: Memory) -> None:
        self.image, self.memory = image, memory
        self.most = {Step.N_PAST: entry.max_past, Step.N_NEW: entry.rows}
        self.step_base = image.base_rows(BaseKind.STEP)[0]
        self.stored: dict[int, frozenset[int]] = {}
        self.patches: dict[int, dict[str, StepPatch]] = {}
        for index in entry.steps:
            patch = image.steps[index]
            self.patches.setdefault(patch.row, {})[patch.field] = patch
        self.makers: dict[str, Callable[[TaskRef, dict[str, Any]], Op]] = {
            "dma": self._dma, "dpu": self._dpu, "shave": self._shave,
        }  # fmt: skip
        self.rows = {
            "dma": _records(image.tables.dma, entry.dma),
            "dpu": _records(image.tables.dpu, entry.dpu),
            "shave": _records(image.tables.shave, entry.shave),
        }

    def op(self, task: TaskRef) -> Op:
        return self.makers[task.table](task, self.rows[task.table][task.row])

    def _dma(self, task: TaskRef, fields: dict[str, Any]) -> Op:
        size, dim = tuple(fields["size"]), fields["row_dim"]
        patches = self.patches.get(task.row, {})
        valid: int | Amount = fields["valid"]
        if "valid" in patches:
            valid = Amount(patches["valid"].symbol, patches["valid"].addend, size[dim])
        dst_type = DType(fields["dst_type"])
        scatters, gathers = fields["op"] == DmaOp.SCATTER, fields["op"] == DmaOp.GATHER
        bound = (*size[:dim], fields["index_bound"], *size[dim + 1 :])
        dst, dst_shift = self._side(fields, "dst", dst_type, bound if scatters else size, dim, patches)
        pred = _predicate(fields)
        if fields["op"] == DmaOp.FILL:
            if valid != size[dim] or dst_shift is not None:
                return self._exact(task, pred, [], [_reach(dst, dst_shift)], False)
            return Fill(task, pred, dst, fields["fill"])
        src_type = DType(fields["src_type"])
        src, src_shift = self._side(fields, "src", src_type, bound if gathers else size, dim, patches)
        moves = src_type is dst_type or (src_type in _MOVED and dst_type in _MOVED)
        if src.base == self.memory.constant and src.plane is not Plane.RAW and not self.memory.affordable(src):
            src = raw(src)  # decoded on use
        if gathers or scatters:
            index = make_ref(fields["index_base"], DType.I32, fields["index_offset"], (size[dim],), (4,))
            if (
                not moves
                or valid != size[dim]
                or src_shift
                or dst_shift
                or not bound[dim]
                or src.plane is not plane_of(src_type)
            ):
                return self._exact(task, pred, [_reach(src, src_shift), index], [_reach(dst, dst_shift)], False)
            return (Scatter if scatters else Gather)(task, pred, src, index, dst, dim)
        loads = fields["queue"] == Queue.DMA_IN
        if not moves:
            return self._exact(task, pred, [_reach(src, src_shift)], [_reach(dst, dst_shift)], False)
        return Copy(task, pred, src, dst, dim, valid, loads, src_shift, dst_shift)

    def _side(
        self,
        fields: dict[str, Any],
        side: str,
        dtype: DType,
        size: tuple[int, ...],
        dim: int,
        patches: dict[str, StepPatch],
    ) -> tuple[Ref, Shift | None]:
        stride, patch = tuple(fields[f"{side}_stride"]), patches.get(f"{side}_offset")
        offset = fields[f"{side}_offset"] if patch is None else patch.addend
        shift = None if patch is None else Shift(patch.symbol, stride[dim], self.most[patch.symbol])
        return make_ref(fields[f"{side}_base"], dtype, offset, size, stride), shift

    def _dpu(self, task: TaskRef, fields: dict[str, Any]) -> Op:
        flags = DpuFlag(fields["flags"])
        kn = DpuFlag.B_KN in flags
        m, n, k = fields["m"], fields["n"], fields["k"]
        a = _matrix(fields, "a", m, k)
        codes = _codes(fields, flags, a.dtype)
        b = _matrix(fields, "b", *((k, n) if kn else (n, k))) if codes is None else _bytes(fields, codes)
        c = _matrix(fields, "c", m, n)
        table = None
        if DpuFlag.TABLE in flags:
            table = make_ref(fields["table_base"], DType.F32, fields["table_offset"], (n, 2), (_TABLE_ROW, 4))
        adds = DpuFlag.ACCUMULATE in flags
        pred = _predicate(fields)
        numbers = (a, c) if codes is not None and c.shape[0] == 1 and not kn else (a, b, c)
        if not all(ref.dtype in _MOVED for ref in numbers) or 0 in (m, n, k):
            scales = codes.scales if codes is not None else None
            read = [a, b, *([table] if table else []), *([scales] if scales else []), *([c] if adds else [])]
            return self._exact(task, pred, read, [c], True)
        clamp = (fields["clamp_lo"], fields["clamp_hi"]) if DpuFlag.CLAMP in flags else None
        return Mma(task, pred, a, b, c, kn, adds, fields["scale"], table, clamp, None, codes)

    def _shave(self, task: TaskRef, fields: dict[str, Any]) -> Op:
        tables = self.image.tables
        program = tables.programs[fields["kernel"]]
        first = fields["arg_first"]
        pointers = tables.shave_args[first : first + fields["arg_count"]].tolist()
        args: list[Ref | int | Step] = []
        for spec, (base, scalar, offset) in zip(program.args, pointers, strict=True):
            if spec.mode is not ArgMode.SCALAR:
                args.append(make_ref(base, spec.dtype, offset, spec.shape, spec.stride))
            elif base == NO_BASE:
                args.append(scalar)
            elif base == self.step_base and offset // 4 in Step._value2member_map_:
                args.append(Step(offset // 4))
            else:
                args.append(make_ref(base, DType.I32, offset, (), ()))
        pred = _predicate(fields)
        if program.trip == 1 and not any(isinstance(arg, Ref) and not arg.shape and spec.mode is ArgMode.SCALAR
                                         for arg, spec in zip(args, program.args, strict=True)):  # fmt: skip
            return Call(task, pred, program, args, self._stored(program))
        reach = [
            spread(arg, min(0, spec.step * (program.trip - 1)), max(0, spec.step * (program.trip - 1)))
            if isinstance(arg, Ref) else None for arg, spec in zip(args, program.args, strict=True)
        ]  # fmt: skip
        pairs = list(zip(reach, program.args, strict=True))
        read = [ref for ref, spec in pairs if ref is not None and not spec.writes]
        written = [ref for ref, spec in pairs if ref is not None and spec.writes]
        return self._exact(task, pred, [*read, *written], written, False)

    def _stored(self, program: Program) -> frozenset[int]:
        found = self.stored.get(id(program))
        if found is None:
            found = frozenset(step.a for step in program.instructions if step.op is Code.STORE)
            self.stored[id(program)] = found
        return found

    def _exact(self, task: TaskRef, pred: Pred, read: list[Ref], written: list[Ref], sure: bool) -> Exact:
        return Exact(task, pred, [raw(ref) for ref in read], [raw(ref) for ref in written], sure)


def _records(table: np.ndarray, rows: range) -> dict[int, dict[str, Any]]:
    """The records of a range of rows as Python values, by row."""
    columns = {
        name: table[name][rows.start : rows.stop].tolist()
        for name in table.dtype.names or ()
        if name not in ("wait", "post", "start_after", "node")
    }
    names = list(columns)
    return {
        row: dict(zip(names, values, strict=True))
        for row, values in zip(rows, zip(*columns.values(), strict=True), strict=True)
    }


def _number_flags(ops: Sequence[Op], constant: int) -> None:
    """Gives each flag its version: the task that has written it last."""
    flagged = [op for op in ops if isinstance(op.pred, FlagPredicate)]
    if not flagged:
        return
    writer = Cells(ops, constant).track(-1, np.int32)
    for number, op in enumerate(ops):
        if isinstance(op.pred, FlagPredicate):
            op.pred = replace(op.pred, version=writer.largest(op.pred.flag))
            op.changed()
        for access in op.writes:
            writer.put(raw(access.ref), number)


Pred = Predicate | FlagPredicate | None


def _predicate(fields: dict[str, Any]) -> Pred:
    code = PredicateCode(fields["pred"])
    if code in FLAGS:
        flag = make_ref(fields["pred_base"], DType.I32, fields["pred_value"], (), ())
        return FlagPredicate(flag, code is PredicateCode.FLAG_NZ, -1)
    if code is PredicateCode.ALWAYS:
        return None
    above = fields["pred_value"]
    return Predicate(PREDICATE_FIELDS[code], above, above + fields["pred_base"] if code in RANGES else None)


def _matrix(fields: dict[str, Any], name: str, height: int, width: int) -> Ref:
    dtype = DType(fields[f"{name}_type"])
    stride = (fields[f"{name}_batch"], fields[f"{name}_stride"], dtype.nbytes)
    batch = min(fields["batch"], 1) if name != "c" and stride[0] == 0 else fields["batch"]
    return make_ref(fields[f"{name}_base"], dtype, fields[f"{name}_offset"], (batch, height, width), stride)


def _codes(fields: dict[str, Any], flags: DpuFlag, a_type: DType) -> Codes | None:
    """How operand b reads where it holds codes or has scales of groups."""
    dtype, k, n = DType(fields["b_type"]), fields["k"], fields["n"]
    if not (dtype.packed or DpuFlag.SCALES in flags or (a_type.is_float and not dtype.is_float)):
        return None
    group = fields["group"] or max(k, 1)
    if DpuFlag.SCALES not in flags:
        return Codes(dtype, k, fields["b_zero"], group, DType.F32, None)
    kind = DType(fields["scale_type"])
    shape, stride = (n, -(-k // group) * kind.nbytes), (fields["table_stride"], 1)
    scales = raw(make_ref(fields["table_base"], DType.U8, fields["table_offset"], shape, stride))
    return Codes(dtype, k, fields["b_zero"], group, kind, scales)


def _bytes(fields: dict[str, Any], codes: Codes) -> Ref:
    """Operand b as bytes [batch, n, bytes], or [batch, k, n] of them."""
    width = fields["n"] if fields["flags"] & DpuFlag.B_KN else codes.k * codes.dtype.bits // 8
    height = codes.k if fields["flags"] & DpuFlag.B_KN else fields["n"]
    stride = (fields["b_batch"], fields["b_stride"], 1)
    batch = min(fields["batch"], 1) if stride[0] == 0 else fields["batch"]
    return raw(make_ref(fields["b_base"], DType.U8, fields["b_offset"], (batch, height, width), stride))


def _reach(ref: Ref, shift: Shift | None) -> Ref:
    if shift is None:
        return ref
    ends = (0, shift.stride * shift.most)
    return spread(ref, min(ends), max(ends))
