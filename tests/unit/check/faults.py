"""Ways to break a good program. Each takes a program and a place, and gives the broken program and the rules that
must fire.

The faults are real by construction: they break a rule of the table by themselves, or take away an ordering that the
scheduler kept because two tasks touch the same bytes and nothing else orders them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from npuc.schedule import Barrier, EntryProgram, Sync
from npuc.schedule.barriers import Virtual, assign
from npuc.tasks.graph import Buffer, Region, Role, Task

Fault = Callable[[EntryProgram, int], tuple[EntryProgram, set[str]]]

TABLE = {"barrier-count", "barrier-id", "start-after", "barrier-mask"}
HAZARD = {"RAW", "WAR", "WAW"}


def _sync(program: EntryProgram, task: int, **changes: object) -> EntryProgram:
    sync = list(program.sync)
    sync[task] = replace(sync[task], **changes)  # type: ignore[arg-type]
    return replace(program, sync=sync)


def _barrier(program: EntryProgram, row: int, **changes: int) -> EntryProgram:
    barriers = list(program.barriers)
    barriers[row] = replace(barriers[row], **changes)
    return replace(program, barriers=barriers)


def _waiting(program: EntryProgram, place: int) -> int:
    tasks = [task for task, sync in enumerate(program.sync) if sync.wait]
    return tasks[place % len(tasks)]


def _posting(program: EntryProgram, place: int) -> int:
    tasks = [task for task, sync in enumerate(program.sync) if sync.post]
    return tasks[place % len(tasks)]


def lost_wait(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    task = _waiting(program, place)
    return _sync(program, task, wait=program.sync[task].wait[1:]), TABLE


def lost_post(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    task = _posting(program, place)
    return _sync(program, task, post=program.sync[task].post[:-1]), TABLE


def extra_wait(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    task = _waiting(program, place)
    sync = program.sync[task]
    unused = min(set(range(16)) - {*sync.wait, *sync.post})
    return _sync(program, task, wait=tuple(sorted((*sync.wait, unused)))), TABLE


def too_many_producers(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    row = place % len(program.barriers)
    return _barrier(program, row, producers=program.barriers[row].producers + 1), {"barrier-count"}


def too_few_consumers(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    row = place % len(program.barriers)
    return _barrier(program, row, consumers=program.barriers[row].consumers - 1), {"barrier-count"}


def other_id(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    row = place % len(program.barriers)
    return _barrier(program, row, id=(program.barriers[row].id + 1) % 16), TABLE


def id_too_high(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    row = place % len(program.barriers)
    return _barrier(program, row, id=16), {"barrier-id"}


def starts_too_early(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    task = _waiting(program, place)
    return _sync(program, task, start_after=program.sync[task].start_after - 1), TABLE


def starts_too_late(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    task = _posting(program, place)
    return _sync(program, task, start_after=program.sync[task].start_after + 1), TABLE


def rows_swapped(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    at = place % (len(program.barriers) - 1)
    barriers = list(program.barriers)
    barriers[at], barriers[at + 1] = barriers[at + 1], barriers[at]
    return replace(program, barriers=barriers), TABLE


def syncs_swapped(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    first = _waiting(program, place)
    second = next(t for t in range(first + 1, len(program.tasks)) if program.sync[t] != program.sync[first])
    sync = list(program.sync)
    sync[first], sync[second] = sync[second], sync[first]
    return replace(program, sync=sync), TABLE | HAZARD | {"backward", "deadlock"}


def virtuals(program: EntryProgram) -> list[Virtual]:
    """The program's barriers by tasks: the last row below start_after that holds an id is meant."""
    producers: list[list[int]] = [[] for _ in program.barriers]
    consumers: list[list[int]] = [[] for _ in program.barriers]
    for task, sync in enumerate(program.sync):
        for ids, members in ((sync.wait, consumers), (sync.post, producers)):
            for number in ids:
                members[max(r for r in range(sync.start_after) if program.barriers[r].id == number)].append(task)
    return [Virtual(tuple(p), tuple(c)) for p, c in zip(producers, consumers, strict=True)]


def _rebuilt(program: EntryProgram, barriers: list[Virtual]) -> EntryProgram:
    """The program with other virtual barriers, and a table that agrees with them."""
    table, sync = assign(sorted(barriers, key=lambda b: (b.first, b.last, b.consumers)), len(program.tasks), 16)
    return replace(program, barriers=table, sync=sync)


def dropped_barrier(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    barriers = virtuals(program)
    del barriers[place % len(barriers)]
    return _rebuilt(program, barriers), HAZARD


def dropped_consumer(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    """A barrier loses its first consumer; the table agrees."""
    barriers = virtuals(program)
    at = place % len(barriers)
    rest = barriers[at].consumers[1:]
    barriers[at : at + 1] = [Virtual(barriers[at].producers, rest)] if rest else []
    return _rebuilt(program, barriers), HAZARD


def post_one_task_early(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    """The task before the last producer in its queue posts instead of it; the table agrees."""
    barriers = virtuals(program)
    before = {}
    last: dict[str, int] = {}
    for task, queue in enumerate(program.queues):
        before[task] = last.get(queue, -1)
        last[queue] = task
    able = [
        at
        for at, b in enumerate(barriers)
        if before[b.producers[-1]] >= 0 and before[b.producers[-1]] not in b.producers
    ]
    at = able[place % len(able)]
    chosen = barriers[at]
    posting = tuple(sorted((*chosen.producers[:-1], before[chosen.producers[-1]])))
    barriers[at] = Virtual(posting, chosen.consumers)
    return _rebuilt(program, barriers), HAZARD


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


def stuck(program: EntryProgram, place: int) -> tuple[EntryProgram, set[str]]:
    """Two tasks of different queues wait for each other through two more barriers; the table agrees."""
    at = place % (len(program.tasks) - 1)
    other = next(t for t in range(at + 1, len(program.tasks)) if program.queues[t] != program.queues[at])
    rows = len(program.barriers)
    used = {*program.sync[at].wait, *program.sync[at].post, *program.sync[other].wait, *program.sync[other].post}
    one, two = sorted(set(range(16)) - used)[:2]
    sync = list(program.sync)
    sync[at] = Sync(tuple(sorted((*sync[at].wait, one))), tuple(sorted((*sync[at].post, two))), rows + 2)
    sync[other] = Sync(tuple(sorted((*sync[other].wait, two))), tuple(sorted((*sync[other].post, one))), rows + 2)
    return replace(program, barriers=[*program.barriers, Barrier(one, 1, 1), Barrier(two, 1, 1)], sync=sync), {
        "deadlock",
        "backward",
        "barrier-count",
        "barrier-id",
    }


FAULTS: list[Fault] = [
    lost_wait,
    lost_post,
    extra_wait,
    too_many_producers,
    too_few_consumers,
    other_id,
    id_too_high,
    starts_too_early,
    starts_too_late,
    rows_swapped,
    syncs_swapped,
    dropped_barrier,
    dropped_consumer,
    post_one_task_early,
    shortened_life,
    shifted_address,
    beyond_memory,
    reused_too_soon,
    wrong_peak,
    unplaced,
    region_too_long,
    wrong_queue,
    tasks_swapped,
    stuck,
]
