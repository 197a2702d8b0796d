"""What the core runs once its flags are known: a scalar unit reads them, and issues one side of the branch alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from npuc.tasks.graph import CallOp, Region, Task, TaskGraph
from npurt.abi.bytecode import ArgMode
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder

Taken = Callable[[Task], bool]
"""Whether the flags that a task reads are set."""


def executed(graph: TaskGraph, taken: Taken) -> TaskGraph:
    """The tasks that act, with a task of the scalar unit where a branch begins: it waits for what the flags say, and
    issues nothing else before."""
    code = _read_flags()
    found = TaskGraph(graph.entry, rows=graph.rows, capacity=graph.capacity)
    read: dict[str, tuple[Region, ...]] = {}  # of each scalar unit, the flags that it read last
    for task in graph.tasks:
        if task.flag is None:
            found.tasks.append(task)
            continue
        flags = tuple(task.reads[at] for at in task.flag.reads)
        unit = "scalar" + task.engine[task.engine.find(".") :] if "." in task.engine else "scalar"
        if read.get(unit) != flags:  # neighbouring blocks have flags of their own
            read[unit] = flags
            call = CallOp("read_flags", code, tuple(("r", at) for at in range(len(flags))))
            found.tasks.append(Task(unit, call, flags, (), replace(task.origin, stage="read flags")))
        if task.flag.taken == taken(task):
            reads = tuple(region for at, region in enumerate(task.reads) if at not in task.flag.reads)
            found.tasks.append(Task(task.engine, task.op, reads, task.writes, task.origin))
    return found


def _read_flags() -> bytes:
    b = ProgramBuilder()
    for _ in range(2):
        b.load(b.arg(ArgMode.IN, DType.I32, (1,)))
    return b.bytes()
