"""One kernel over arrays of the caller as a program of its own: to be run as a blob, or to be timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npuc.schedule import EntryProgram, schedule
from npuc.tasks import Buffer, Origin, Region, Role, Task, TaskGraph
from npuc.tile import ArrayType, Kernel, Trace, TraceCache
from npuc.tile.types import dense_stride
from npukernels.elementwise import copy
from npurt.target import Target

ENTRY = "main"


@dataclass(frozen=True)
class Roles:
    """Which of a kernel's arrays it reads and writes, by number, and how they are called."""

    names: tuple[str, ...]
    read: tuple[int, ...]
    written: tuple[int, ...]


def roles_of(kernel: Kernel, trace: Trace, params: Mapping[str, object]) -> Roles:
    """From the tasks of a trace. An array that each program writes before it reads it is no input."""
    count = len(trace.types)
    read: dict[int, None] = {}
    written: dict[int, None] = {}
    for template in trace.templates:
        here: set[int] = set()
        for task in template.tasks:
            for view in task.reads:
                if view.slot < count and view.slot not in here:
                    read.setdefault(view.slot)
            here.update(view.slot for view in task.writes if view.slot < count)
        written.update(dict.fromkeys(sorted(here)))
    return Roles(tuple(kernel.argument_names(count, params)), tuple(sorted(read)), tuple(sorted(written)))


def kernel_program(trace: Trace, roles: Roles, target: Target, step: Mapping[str, int]) -> EntryProgram:
    """The scheduled program of one call. Arrays lie in DDR: INPUT buffers ``main.in.NAME`` if they are only read, else
    STATE buffers ``state.NAME``. One that the kernel wants on-chip is brought there before, and back after.

    step: n_past and n_new of the fullest run. Errors: of the scheduler, where buffers or engines do not fit the target.
    """
    cache = TraceCache()
    before: list[Task] = []
    after: list[Task] = []
    regions: list[Region | None] = []
    for number, type_ in enumerate(trace.types):
        if type_ is None:
            regions.append(None)
            continue
        name, is_written = roles.names[number], number in roles.written
        role, symbol = (Role.STATE, f"state.{name}") if is_written else (Role.INPUT, f"{ENTRY}.in.{name}")
        outside = _dense(Buffer(symbol, "ddr", type_.elements * type_.dtype.nbytes, role), type_)
        if not type_.on_chip:
            regions.append(outside)
            continue
        inside = _dense(Buffer(name, type_.memory, outside.buffer.nbytes), type_)
        before += _copies(outside, inside, cache)
        if is_written:
            after += _copies(inside, outside, cache)
        regions.append(inside)
    tasks = [*before, *trace.instantiate(regions, Origin(entry=ENTRY, kernel=trace.kernel), trace.kernel), *after]
    graph = TaskGraph(ENTRY, tasks, rows=max(step.get("n_new", 1), 1), capacity=step.get("n_past", 0))
    return schedule(graph, target)


def _dense(buffer: Buffer, type_: ArrayType) -> Region:
    return Region(buffer, 0, type_.dtype, type_.shape, dense_stride(type_.dtype, type_.shape))


def _copies(source: Region, sink: Region, cache: TraceCache) -> list[Task]:
    types = [ArrayType(r.dtype, r.shape, r.stride, r.buffer.memory) for r in (source, sink)]
    trace = copy.trace(types, {"tile": source.shape}, cache=cache)
    return trace.instantiate((source, sink), Origin(entry=ENTRY, kernel="copy"), f"copy.{sink.buffer.name}")

