"""One kernel over arrays of the caller as a program of its own: to be run as a blob, or to be timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from npuc.authoring.errors import KernelSourceError
from npuc.schedule import EntryProgram, OverflowRefused, schedule
from npuc.tasks import Buffer, Origin, Region, Role, Task, TaskGraph
from npuc.tile import ArrayType, Kernel, Trace, TraceCache
from npuc.tile.smaller import smaller_sizes, smaller_text
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


def kernel_program(trace: Trace, roles: Roles, target: Target, step: Mapping[str, int], *, bring: bool) -> EntryProgram:
    """The scheduled program of one call. Arrays in DDR are INPUT buffers ``main.in.NAME`` if they are only read, else
    STATE buffers ``state.NAME``.

    bring: an array that the kernel wants on-chip is brought there from DDR before, and back after; else it is there,
    as in the middle of a model. step: n_past and n_new of the fullest run. Errors: of the scheduler, where buffers or
    engines do not fit the target.
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
        if not type_.on_chip:
            regions.append(_region(symbol, type_, role))
            continue
        inside = _region(name, type_, Role.LOCAL)
        regions.append(inside)
        if bring:
            outside = _region(symbol, replace(type_, memory="ddr"), role)
            before += _copies(outside, inside, cache)
            after += _copies(inside, outside, cache) if is_written else []
    tasks = [*before, *trace.instantiate(regions, Origin(entry=ENTRY, kernel=trace.kernel), trace.kernel), *after]
    graph = TaskGraph(ENTRY, tasks, rows=max(step.get("n_new", 1), 1), capacity=step.get("n_past", 0))
    return schedule(graph, target)


def with_advice(
    error: OverflowRefused, kernel: Kernel, types: Sequence[ArrayType | None], params: Mapping[str, object]
) -> KernelSourceError:
    """The scheduler's list of the buffers that do not fit, and the smallest change of a size that does."""
    advice = smaller_text(smaller_sizes(kernel, types, params, error.available), params)
    return KernelSourceError("\n".join([f"kernel {kernel.name}: {error}", *([advice] if advice else [])]))


def _region(name: str, type_: ArrayType, role: Role) -> Region:
    """The whole of a buffer of its own; gaps between rows are part of it."""
    reach = sum((extent - 1) * stride for extent, stride in zip(type_.shape, type_.stride, strict=True))
    nbytes = reach + type_.dtype.nbytes if type_.elements else 0
    return Region(Buffer(name, type_.memory, nbytes, role), 0, type_.dtype, type_.shape, type_.stride)


def _copies(source: Region, sink: Region, cache: TraceCache) -> list[Task]:
    types = [ArrayType(r.dtype, r.shape, r.stride, r.buffer.memory) for r in (source, sink)]
    trace = copy.trace(types, {"tile": source.shape}, cache=cache)
    return trace.instantiate((source, sink), Origin(entry=ENTRY, kernel="copy"), f"copy.{sink.buffer.name}")
