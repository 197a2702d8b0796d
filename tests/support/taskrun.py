"""A reference executor of task graphs: tasks in trace order, on one NumPy byte array for each buffer.

It shares the arithmetic (npurt.numerics, the SHAVE machine) with the device, and nothing else: no placement, no queues,
no records. What was never written is 0xFF, that is NaN in every float type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuc.tasks import Buffer, CallOp, CopyOp, FillOp, GatherOp, MmaOp, Region, ScatterOp, StepValue, Task, When
from npurt import numerics
from npurt.abi.bytecode import ArgMode
from npurt.abi.dtypes import DType
from npurt.shave import parse, prepare

Step = Mapping[str, int]


class TaskRunner:
    """Memory of one run. bind() before run() gives buffers their contents; memory[buffer] holds the bytes."""

    def __init__(self) -> None:
        self.memory: dict[Buffer, np.ndarray] = {}
        self._programs: dict[bytes, object] = {}

    def bind(self, buffer: Buffer, contents: np.ndarray) -> None:
        """The buffer's bytes are those of `contents` (C-contiguous), in place."""
        data = contents.reshape(-1).view(np.uint8)
        assert data.size == buffer.nbytes and (np.shares_memory(data, contents) or not data.size)
        self.memory[buffer] = data

    def view(self, region: Region, shift: int = 0) -> np.ndarray:
        """The region as a NumPy view, moved by `shift` bytes. ValueError where it leaves its buffer."""
        memory = self.bytes_of(region.buffer)
        return np.ndarray(region.shape, region.dtype.storage, memory, region.offset + shift, region.stride)

    def bytes_of(self, buffer: Buffer) -> np.ndarray:
        if buffer not in self.memory:
            self.memory[buffer] = np.full(buffer.nbytes, 0xFF, np.uint8)
        return self.memory[buffer]

    def run(self, tasks: Sequence[Task], step: Step | None = None) -> None:
        block = dict(step or {})
        for task in tasks:
            if _holds(task.when, block) and self._flagged(task):
                self._run(task, block)

    def _flagged(self, task: Task) -> bool:
        """Whether the flag of a task lets it act."""
        if task.flag is None:
            return True
        return any(self.view(task.reads[at]).any() for at in task.flag.reads) == task.flag.taken

    def _run(self, task: Task, step: Step) -> None:
        if not isinstance(task.op, CallOp):
            _check_disjoint(task)
        match task.op:
            case CopyOp() as op:
                self._copy(task, op, step)
            case FillOp(bits=bits):
                target = self.view(task.writes[0])
                width = task.writes[0].dtype.nbytes
                target[...] = np.frombuffer(bits.to_bytes(4, "little")[:width], target.dtype)[0]
            case GatherOp(bound=bound, row_dim=axis):
                table, rows = (self.view(region) for region in task.reads[:2])
                table, out = (np.moveaxis(view, axis, 0) for view in (table, self.view(task.writes[0])))
                for r, row in enumerate(rows):
                    out[r] = table[row] if 0 <= row < bound else 0
            case ScatterOp(bound=bound, row_dim=axis):
                source, rows = (self.view(region) for region in task.reads[:2])
                source = numerics.store(numerics.load(source, task.reads[0].dtype), task.writes[0].dtype)
                source, out = (np.moveaxis(view, axis, 0) for view in (source, self.view(task.writes[0])))
                for r, row in enumerate(rows):
                    if 0 <= row < bound:
                        out[row] = source[r]
            case MmaOp() as op:
                self._mma(task, op)
            case CallOp() as op:
                self._call(task, op, step)

    def _copy(self, task: Task, op: CopyOp, step: Step) -> None:
        source, target = task.reads[0], task.writes[0]
        assert source.shape == target.shape, (source.shape, target.shape)
        rows = source.shape[op.row_dim] if source.shape else 1
        if op.valid is not None:
            rows = min(max(_value(op.valid, step), 0), rows)
        data = self._cut(source, op.row_dim, rows, step[op.shift_src] if op.shift_src else 0)
        out = self._cut(target, op.row_dim, rows, step[op.shift_dst] if op.shift_dst else 0)
        if task.engine == "dma.in" and op.valid is not None:
            self.view(target)[...] = 0
        same = source.dtype is target.dtype
        out[...] = data if same else numerics.store(numerics.load(data, source.dtype), target.dtype)

    def _cut(self, region: Region, axis: int, rows: int, shift: int) -> np.ndarray:
        """The first `rows` of a region that starts `shift` rows further on: only these must be inside the buffer."""
        if not region.shape:
            return self.view(region)
        shape = (*region.shape[:axis], rows, *region.shape[axis + 1 :])
        cut = Region(region.buffer, region.offset, region.dtype, shape, region.stride)
        return self.view(cut, shift * region.stride[axis]) if cut.elements else np.empty(shape, region.dtype.storage)

    def _mma(self, task: Task, op: MmaOp) -> None:
        a, b = (numerics.load(self.view(region), region.dtype) for region in task.reads[:2])
        target = task.writes[0]
        assert all(
            len(r.shape) in (2, 3) and (r.shape[-1] <= 1 or r.stride[-1] == r.dtype.nbytes)
            for r in (*task.reads[:2], target)
        ), "DPU rows must be adjacent"
        if op.codes is not None:
            b = numerics.unpack(b, op.codes)
            b = b.astype(np.float64) - op.zero if a.dtype.kind == "f" else b - np.int32(op.zero)
        if op.scales:
            scales = numerics.load(self.view(task.reads[2]), task.reads[2].dtype)
            result = numerics.mma_scaled(a, b, scales, op.group or a.shape[-1])
        else:
            result = numerics.mma_exact(a, b, op.b_kn)
        with np.errstate(all="ignore"):
            if op.scale != 1.0:
                result = result * np.float32(op.scale)
            if op.table:
                rows = self.view(task.reads[2])
                result = result * rows[:, 0] + rows[:, 1]
            if op.clamp is not None:
                result = np.clip(result, np.float32(op.clamp[0]), np.float32(op.clamp[1]))
            out = self.view(target)
            if op.accumulate:
                assert target.dtype is DType.F32 and target in task.reads
                result = out + result
        assert out.shape == result.shape, (out.shape, result.shape)
        out[...] = numerics.store(result, target.dtype)

    def _call(self, task: Task, op: CallOp, step: Step) -> None:
        if op.code not in self._programs:
            self._programs[op.code] = prepare(parse(op.code))
        program = self._programs[op.code]
        pointers = []
        for (kind, value), spec in zip(op.args, program.program.args, strict=True):
            if spec.mode is ArgMode.SCALAR:
                number = step[value] if kind == "s" else value
                pointers.append((np.array([number], np.int32).view(np.uint8), 0))
                continue
            region = (task.reads if kind == "r" else task.writes)[value]
            assert (spec.dtype, spec.shape, spec.stride) == (region.dtype, region.shape, region.stride)
            pointers.append((self.bytes_of(region.buffer), region.offset))
        program.bind(pointers)()


def _check_disjoint(task: Task) -> None:
    """Engines but SHAVE read while they write: only an accumulator, in the same place, may be both."""
    for read in task.reads:
        for write in task.writes:
            if read.buffer is write.buffer and read != write:
                (a, b), (c, d) = read.span, write.span
                assert b <= c or d <= a or _interleaved(read, write), f"{task.origin}: {read} meets {write}"


def _interleaved(a: Region, b: Region) -> bool:
    """Whether two views of one buffer share no byte although their spans meet."""
    touched = []
    for region in (a, b):
        bytes_ = np.zeros(region.buffer.nbytes, np.uint8)
        np.ndarray(region.shape, f"V{region.dtype.nbytes}", bytes_, region.offset, region.stride)[...] = (
            b"\1" * region.dtype.nbytes
        )
        touched.append(bytes_)
    return not (touched[0] & touched[1]).any()


def _holds(when: When | None, step: Step) -> bool:
    return when is None or when.holds(step)


def _value(value: StepValue, step: Step) -> int:
    return step[value.field] + value.add
