"""Random task graphs, and a tiny value model that runs programs in any order the device may choose.

A task's "computation" is a hash: its output bytes depend on the task and on every byte that it reads. So two
executions agree in all bytes only if every task read the same values. A copy writes what it reads, filled up with
zeros, so that the scheduler may copy on its own account.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import numpy as np

from npuc.schedule import EntryProgram, Limits
from npuc.schedule.limits import Ways
from npuc.schedule.simulate import BarrierMachine
from npuc.tasks.graph import Buffer, CallOp, CopyOp, MmaOp, Origin, Region, Role, StepValue, Task, TaskGraph
from npurt.abi.dtypes import DType

QUEUES = ("dma.in", "dma.out", "dpu", "shave")
STATE_ROWS, STATE_ROW = 24, 32  # rows and bytes a row of the state buffer


def limits(cmx: int = 1 << 16, barriers: int = 16) -> Limits:
    ways = {"cmx": Ways("dma.out", "dma.in")}
    return Limits({queue: queue for queue in QUEUES}, {"cmx": cmx}, barriers, 64, 64, ways)


def view(buffer: Buffer, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Region:
    return Region(buffer, offset, DType.I8, shape, stride)


def whole(buffer: Buffer) -> Region:
    return view(buffer, 0, (buffer.nbytes,), (1,))


def random_graph(seed: int, tasks: int) -> TaskGraph:
    """Buffers that come and go; every one is first written whole, then read and written in rows, columns and pieces."""
    rng = random.Random(seed)
    source = Buffer("source", "ddr", 512, Role.INPUT)
    target = Buffer("target", "ddr", 512, Role.OUTPUT)
    state = Buffer("state", "ddr", STATE_ROWS * STATE_ROW, Role.STATE)
    live: list[Buffer] = []
    graph = TaskGraph("main", [Task("dma.out", CopyOp(), (whole(source),), (whole(target),))])

    def piece(buffer: Buffer) -> Region:
        size = buffer.nbytes
        if rng.random() < 0.3 and size >= 64:  # columns of a matrix of 16-byte rows
            start, width = rng.randrange(8), rng.randint(1, 8)
            return view(buffer, start, (size // 16, width), (16, 1))
        start = rng.randrange(size)
        return view(buffer, start, (rng.randint(1, size - start),), (1,))

    while len(graph.tasks) < tasks:
        kind = rng.random()
        if kind < 0.35 or len(live) < 2:
            buffer = Buffer(
                f"b{len(graph.tasks)}", rng.choice(["cmx", "cmx", "cmx", "ddr"]), rng.choice([64, 96, 256, 512])
            )
            live.append(buffer)
            if rng.random() < 0.6:
                graph.tasks.append(
                    Task("dma.in", CopyOp(), (view(source, 0, (buffer.nbytes,), (1,)),), (whole(buffer),))
                )
            else:
                reads = tuple(piece(other) for other in live[:-1][-2:])
                graph.tasks.append(Task(rng.choice(("dpu", "shave")), CallOp("f", b"", ()), reads, (whole(buffer),)))
        elif kind < 0.45:
            rows, start = rng.randint(1, 4), 0
            new = piece(rng.choice(live))
            write = view(state, start, (rows, STATE_ROW), (STATE_ROW, 1))
            graph.tasks.append(Task("dma.out", CopyOp(shift_dst="n_past"), (new,), (write,)))
        elif kind < 0.55:
            row = rng.randrange(0, 16, 4)
            buffer = Buffer(f"p{len(graph.tasks)}", "cmx", 4 * STATE_ROW)
            live.append(buffer)
            read = view(state, row * STATE_ROW, (4, STATE_ROW), (STATE_ROW, 1))
            graph.tasks.append(Task("dma.in", CopyOp(valid=StepValue("n_past", -row)), (read,), (whole(buffer),)))
        elif kind < 0.65:
            out = view(target, rng.randrange(256), (rng.randint(1, 256),), (1,))
            graph.tasks.append(Task("dma.out", CopyOp(), (piece(rng.choice(live)),), (out,)))
        else:
            a, b, c = (rng.choice(live) for _ in range(3))
            out = piece(c)
            graph.tasks.append(
                Task(rng.choice(("dpu", "shave")), MmaOp(accumulate=True), (piece(a), piece(b), out), (out,))
            )
        if len(live) > 6:
            live.pop(rng.randrange(len(live)))
    for index, task in enumerate(graph.tasks):
        task.origin = Origin(coord=(index,))
    return graph


class Memory:
    """Bytes of all buffers. offsets: None keeps every buffer apart; else local buffers share their memory as placed."""

    def __init__(self, graph: TaskGraph, offsets: dict[Buffer, int] | None, n_past: int) -> None:
        self.n_past = n_past
        self.base: dict[Buffer, tuple[np.ndarray, int]] = {}
        shared: dict[str, np.ndarray] = {}
        for buffer in graph.buffers():
            if buffer.role is Role.LOCAL and offsets is not None:
                memory = shared.setdefault(buffer.memory, np.zeros(1 << 17, np.uint8))
                self.base[buffer] = memory, offsets[buffer]
            else:
                self.base[buffer] = np.arange(buffer.nbytes, dtype=np.uint8), 0

    def view(self, region: Region, shift: str | None, rows: int | None) -> np.ndarray:
        memory, base = self.base[region.buffer]
        offset = base + region.offset + (self.n_past * region.stride[0] if shift else 0)
        shape = region.shape if rows is None else (rows, *region.shape[1:])
        return np.ndarray(shape, np.uint8, memory, offset, region.stride)

    def read(self, task: Task) -> bytes:
        """The output bytes of a task, a function of all that it reads."""
        copy = task.op if isinstance(task.op, CopyOp) else CopyOp()
        data = b""
        for region in task.reads:
            rows = None if copy.valid is None else min(max(self.n_past + copy.valid.add, 0), region.shape[0])
            data += self.view(region, copy.shift_src, rows).tobytes()
        size = sum(region.nbytes for region in task.writes)
        if task.op is copy:
            return data[:size].ljust(size, b"\0")
        return hashlib.shake_128(f"{task.origin.coord}".encode() + data).digest(size)

    def write(self, task: Task, data: bytes) -> None:
        at = 0
        for region in task.writes:
            shift = task.op.shift_dst if isinstance(task.op, CopyOp) else None
            self.view(region, shift, None)[...] = np.frombuffer(data, np.uint8, region.nbytes, at).reshape(region.shape)
            at += region.nbytes


def in_trace_order(graph: TaskGraph, n_past: int) -> list[bytes]:
    """What each task computes, one after the other, every buffer apart."""
    memory = Memory(graph, None, n_past)
    results = []
    for task in graph.tasks:
        results.append(memory.read(task))
        memory.write(task, results[-1])
    return results


Choose = Callable[[list[str], list[str]], tuple[bool, str, bool]]
"""(startable queues, running queues) -> (start?, queue, write at the start already?)"""


def randomly(seed: int) -> Choose:
    rng = random.Random(seed)

    def choose(startable: list[str], running: list[str]) -> tuple[bool, str, bool]:
        start = bool(startable) and (not running or rng.random() < 0.6)
        return start, rng.choice(startable if start else running), rng.random() < 0.5

    return choose


def favouring(favourite: str) -> Choose:
    """One queue runs as far ahead as it may, the others start as early and finish as late as they may."""

    def choose(startable: list[str], running: list[str]) -> tuple[bool, str, bool]:
        if favourite in running:
            return False, favourite, True
        if startable:
            return True, favourite if favourite in startable else startable[0], True
        return False, running[-1], True

    return choose


def on_device(program: EntryProgram, n_past: int, choose: Choose) -> list[bytes]:
    """What each task computes on placed memory, in an order that the barriers allow and `choose` picks; without the
    tasks that the scheduler added.
    """
    graph = TaskGraph(program.entry, program.tasks)
    memory = Memory(graph, program.offsets, n_past)
    machine = BarrierMachine(program.queues, program.barriers, program.sync)
    results = [b""] * len(program.tasks)
    late: set[int] = set()
    while any(machine.pending.values()):
        startable = machine.startable()
        assert startable or machine.running, machine.dump()
        starts, queue, early = choose(startable, sorted(machine.running))
        if starts:
            task = machine.start(queue)
            results[task] = memory.read(program.tasks[task])
            if early:
                memory.write(program.tasks[task], results[task])
            else:
                late.add(task)
        else:
            task = machine.finish(queue)
            if task in late:
                memory.write(program.tasks[task], results[task])
    added = ("spill", "reload")
    return [result for result, task in zip(results, program.tasks, strict=True) if task.origin.stage not in added]
