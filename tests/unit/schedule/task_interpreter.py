"""Runs tasks on real bytes with the device's arithmetic, one task after the other, every buffer apart or as placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from npuc.tasks.graph import Buffer, CallOp, CopyOp, FillOp, GatherOp, MmaOp, Region, Role, Task, TaskGraph
from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.shave import parse, prepare


class Memory:
    """Bytes of all buffers. offsets: None keeps buffers apart; else local ones share their memory. Starts as NaN
    bytes.
    """

    def __init__(self, graph: TaskGraph, offsets: Mapping[Buffer, int] | None = None) -> None:
        self.base: dict[str, tuple[np.ndarray, int]] = {}
        shared: dict[str, np.ndarray] = {}
        for buffer in graph.buffers():
            if buffer.role is Role.LOCAL and offsets is not None:
                memory = shared.setdefault(buffer.memory, np.full(1 << 21, 0xFF, np.uint8))
                self.base[buffer.name] = memory, offsets[buffer]
            else:
                self.base[buffer.name] = np.full(buffer.nbytes, 0xFF, np.uint8), 0

    def put(self, name: str, values: np.ndarray, dtype: DType) -> None:
        memory, base = self.base[name]
        data = np.ascontiguousarray(numerics.store(values, dtype)).view(np.uint8).ravel()
        memory[base : base + data.size] = data

    def get(self, name: str, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
        memory, base = self.base[name]
        return numerics.load(np.ndarray(shape, dtype.storage, memory, base), dtype)

    def view(self, region: Region) -> np.ndarray:
        memory, base = self.base[region.buffer.name]
        return np.ndarray(region.shape, region.dtype.storage, memory, base + region.offset, region.stride)

    def load(self, region: Region) -> np.ndarray:
        return numerics.load(self.view(region), region.dtype)

    def store(self, region: Region, values: np.ndarray) -> None:
        self.view(region)[...] = numerics.store(values, region.dtype)

    def run(self, tasks: Iterable[Task]) -> int:
        """Runs the tasks; returns how many their flags switched off."""
        return sum(not self.step(task) for task in tasks)

    def step(self, task: Task) -> bool:
        """Runs one task; False where its flag says no."""
        if task.flag is not None:
            any_set = any(self.view(task.reads[at]).any() for at in task.flag.reads)
            if any_set != task.flag.taken:
                return False
        match task.op:
            case CopyOp():
                for read, write in zip(task.reads, task.writes, strict=False):
                    self.store(write, self.load(read))
            case FillOp(bits=bits):
                self.view(task.writes[0]).view(f"u{task.writes[0].dtype.nbytes}")[...] = bits
            case GatherOp(bound=bound):
                index = self.view(task.reads[1])
                rows = self.load(task.reads[0])
                inside = (index >= 0) & (index < bound)
                self.store(task.writes[0], np.where(inside[:, None], rows[np.where(inside, index, 0)], 0))
            case MmaOp() as op:
                total = numerics.mma_exact(self.load(task.reads[0]), self.load(task.reads[1]), op.b_kn) * np.float32(
                    op.scale
                )
                self.store(task.writes[0], self.load(task.writes[0]) + total if op.accumulate else total)
            case CallOp() as op:
                chosen = [
                    task.reads[int(v)] if kind == "r" else task.writes[int(v)] for kind, v in op.args if kind in "rw"
                ]
                regions = iter(chosen)
                pointers = []
                for kind, value in op.args:
                    if kind == "i":
                        pointers.append((np.array([value], "<i4").view(np.uint8), 0))
                    else:
                        region = next(regions)
                        memory, base = self.base[region.buffer.name]
                        pointers.append((memory, base + region.offset))
                prepare(parse(op.code)).bind(pointers)()
        return True
