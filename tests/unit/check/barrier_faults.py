"""Ways to break the barriers of a good program; tests.unit.check.faults has the list of all faults."""

from __future__ import annotations

from dataclasses import replace

from npuc.schedule import Barrier, EntryProgram, Sync
from npuc.schedule.barriers import Virtual, assign

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
