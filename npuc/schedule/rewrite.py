"""The task list with the chosen gaps cut out of the lives: stores behind last writes, loads before next uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from npuc.schedule.limits import Ways
from npuc.schedule.spill import Gap
from npuc.tasks.graph import Buffer, CopyOp, Origin, Region, Task, TaskGraph, When
from npuc.tasks.program import Spills
from npurt.abi.dtypes import DType


def cut_gaps(graph: TaskGraph, gaps: Sequence[Gap], ways: Ways) -> tuple[TaskGraph, Spills]:
    """A graph that computes the same with the gaps' buffers off the chip meanwhile. The graph given is not changed."""
    stores: dict[int, list[Gap]] = {}
    loads: dict[int, list[Gap]] = {}
    for gap in sorted(gaps, key=lambda gap: gap.before):
        loads.setdefault(gap.after, []).append(gap)
        if gap.stores:
            stores.setdefault(gap.stored, []).append(gap)
    cut = list(dict.fromkeys(gap.buffer for gap in gaps))
    whole, predicates = _whole_regions(graph, cut), _predicates(graph, cut)
    now: dict[Buffer, Buffer] = {}  # the buffer that holds the content of a cut one
    kept: dict[tuple[Buffer, int], Buffer] = {}  # scratch of a content, by buffer and last write
    numbers: dict[Buffer, int] = {}
    tasks: list[Task] = []
    stored = loaded = 0
    for index, task in enumerate(graph.tasks):
        for gap in loads.get(index, ()):
            buffer = gap.buffer
            numbers[buffer] = number = numbers.get(buffer, 0) + 1
            now[buffer] = replace(buffer, name=f"{buffer.name}~back{number}")
            if gap.loads:
                added = [_again(graph.tasks[at], task, now[buffer]) for at in gap.loads]
            else:
                scratch = kept[buffer, gap.stored]
                added = [_move(ways.back, whole[buffer], scratch, now[buffer], _origin(task, "reload"),
                               predicates[buffer])]  # fmt: skip
            loaded += len(added)
            tasks += added
        tasks.append(_renamed(task, now))
        for gap in stores.get(index, ()):
            buffer = gap.buffer
            scratch = Buffer(f"{buffer.name}~spilled{len(kept)}", "ddr", buffer.nbytes, where=buffer.where)
            kept[buffer, index] = scratch
            source = now.get(buffer, buffer)
            tasks.append(_move(ways.out, whole[buffer], source, scratch, _origin(task, "spill"), predicates[buffer]))
            stored += 1
    spills = Spills(stored, loaded, sum(gap.moved for gap in gaps))
    return TaskGraph(graph.entry, tasks, graph.rows, graph.capacity), spills


def _renamed(task: Task, now: Mapping[Buffer, Buffer]) -> Task:
    """The task on the buffers that hold the contents now; the task itself where none was cut."""
    if not any(region.buffer in now for region in (*task.reads, *task.writes)):
        return task
    reads, writes = (
        tuple(replace(region, buffer=now.get(region.buffer, region.buffer)) for region in regions)
        for regions in (task.reads, task.writes)
    )
    return replace(task, reads=reads, writes=writes)


def _again(load: Task, user: Task, buffer: Buffer) -> Task:
    return replace(load, writes=(replace(load.writes[0], buffer=buffer),), origin=_origin(user, "reload"))


def _move(engine: str, view: Region, source: Buffer, target: Buffer, origin: Origin, when: When | None) -> Task:
    read, write = replace(view, buffer=source), replace(view, buffer=target)
    return Task(engine, CopyOp(), (read,), (write,), origin, when)


def _origin(task: Task, stage: str) -> Origin:
    return replace(task.origin, stage=stage)


def _whole_regions(graph: TaskGraph, buffers: Iterable[Buffer]) -> dict[Buffer, Region]:
    """For each buffer a view of all its bytes: the first of its own that is whole and row-major, else plain bytes."""
    wanted = dict.fromkeys(buffers)
    found: dict[Buffer, Region] = {}
    for task in graph.tasks:
        for region in (*task.reads, *task.writes):
            buffer = region.buffer
            if buffer in wanted and buffer not in found and _covers(region):
                found[buffer] = region
    return {b: found.get(b) or Region(b, 0, DType.U8, (b.nbytes,), (1,)) for b in wanted}


def _covers(region: Region) -> bool:
    step = region.dtype.nbytes
    for extent, stride in zip(reversed(region.shape), reversed(region.stride), strict=True):
        if stride != step:
            return False
        step *= extent
    return region.offset == 0 and step == region.buffer.nbytes


def _predicates(graph: TaskGraph, buffers: Iterable[Buffer]) -> dict[Buffer, When | None]:
    """The step predicate under which alone each buffer is touched; None where some task touches it always."""
    wanted = dict.fromkeys(buffers)
    found: dict[Buffer, When | None] = {}
    for task in graph.tasks:
        for region in (*task.reads, *task.writes):
            if region.buffer in wanted and found.setdefault(region.buffer, task.when) != task.when:
                found[region.buffer] = None
    return found
