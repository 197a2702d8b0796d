"""Ways to break the addresses, regions and order of tasks of a good program; tests.unit.check.faults has the list."""

from __future__ import annotations

from dataclasses import replace

from npuc.schedule import EntryProgram
from npuc.tasks.graph import Buffer, Region, Role, Task
from tests.unit.check.barrier_faults import virtuals


def _lives(program: EntryProgram) -> dict[Buffer, tuple[int, int]]:
    lives: dict[Buffer, tuple[int, int]] = {}
    for index, task in enumerate(program.tasks):
        for region in (*task.reads, *task.writes):
            if region.buffer.role is Role.LOCAL:
                lives[region.buffer] = lives.get(region.buffer, (index, index))[0], index
    return lives


def _moved(program: EntryProgram, buffer: Buffer, offset: int) -> EntryProgram:
    offsets = {**program.offsets, buffer: offset}
    peaks = {m: max(o + b.nbytes for b, o in offsets.items() if b.memory == m) for m in program.peaks}
    return replace(program, offsets=offsets, peaks=peaks)


def shortened_life(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    """A buffer gets the bytes of one that is still to be read, as if that life ended earlier."""
    lives = _lives(program)
    pairs = [
        (b, a)
        for a in lives
        for b in lives
        if a is not b and a.memory == b.memory and lives[a][0] < lives[b][0] <= lives[a][1] and a.nbytes and b.nbytes
    ]
    mover, victim = pairs[place * 7 % len(pairs)]
    return _moved(program, mover, program.offsets[victim]), {"overlap"}


def shifted_address(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    buffers = list(program.offsets)
    buffer = buffers[place * 5 % len(buffers)]
    return _moved(program, buffer, program.offsets[buffer] + 4), {"alignment"}


def beyond_memory(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    buffers = [buffer for buffer in program.offsets if buffer.memory == "cmx"]
    buffer = buffers[place * 5 % len(buffers)]
    return _moved(program, buffer, program.memory_bytes["cmx"] - buffer.nbytes + 64), {"outside", "alignment"}


def reused_too_soon(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    """A buffer that a load fills gets the bytes of one that the task just before it in the trace read for the last
    time, in another queue that nothing orders before the load.
    """
    lives = _lives(program)
    done = {}
    for row in virtuals(program):
        for consumer in row.consumers:
            done.setdefault(consumer, set()).update(row.producers)
    found = []
    for buffer, (first, _) in lives.items():
        if program.queues[first] != "dma.in" or done.get(first):
            continue
        for old, (_, last) in lives.items():
            fits = old.memory == buffer.memory and old.nbytes >= buffer.nbytes
            ordered = any(program.queues[t] == "dma.in" and done.get(t) for t in range(last + 1, first))
            clear = all(
                lives[o][1] < first or lives[o][0] > lives[buffer][1] or o is buffer
                or program.offsets[o] >= program.offsets[old] + buffer.nbytes
                or program.offsets[o] + o.nbytes <= program.offsets[old]
                for o in lives if o.memory == buffer.memory
            )  # fmt: skip
            if fits and last < first and program.queues[last] in ("dpu", "shave") and not ordered and clear:
                found.append((buffer, old))
    buffer, old = found[place % len(found)]
    return _moved(program, buffer, program.offsets[old]), {"WAR"}


def wrong_peak(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    memory = sorted(program.peaks)[place % len(program.peaks)]
    return replace(program, peaks={**program.peaks, memory: program.peaks[memory] - 64}), {"peak"}


def unplaced(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    offsets = dict(program.offsets)
    del offsets[list(offsets)[place % len(offsets)]]
    return replace(program, offsets=offsets), {"unplaced"}


def _with_task(program: EntryProgram, index: int, task: Task) -> EntryProgram:
    tasks = list(program.tasks)
    tasks[index] = task
    return replace(program, tasks=tasks)


def region_too_long(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    index = place * 3 % len(program.tasks)
    task = program.tasks[index]
    region = task.writes[0]
    longer = Region(region.buffer, region.offset + region.buffer.nbytes, region.dtype, region.shape, region.stride)
    return _with_task(program, index, replace_writes(task, (longer,))), {"bounds"}


def replace_writes(task: Task, writes: tuple[Region, ...]) -> Task:
    return Task(task.engine, task.op, task.reads, writes, task.origin, task.when, task.flag)


def wrong_queue(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    index = place * 3 % len(program.tasks)
    queues = list(program.queues)
    queues[index] = "shave" if queues[index] == "dpu" else "dpu"
    return replace(program, queues=queues), {"queue"}


def tasks_swapped(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    """A task and the one that waits for it change places in the trace, with all that belongs to them."""
    pairs = [(row.producers[-1], row.consumers[0]) for row in virtuals(program)]
    first, second = pairs[place % len(pairs)]
    order = list(range(len(program.tasks)))
    order[first], order[second] = second, first
    return replace(
        program,
        tasks=[program.tasks[at] for at in order],
        queues=[program.queues[at] for at in order],
        sync=[program.sync[at] for at in order],
    ), {"backward", "RAW", "WAR", "WAW", "unwritten", "overlap", "deadlock"}
