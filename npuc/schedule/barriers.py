"""Virtual barriers from dependencies, legalised to the number that the machine can hold at the same time.

A virtual barrier joins tasks that post it (producers) with later tasks that wait for it (consumers). It occupies a
physical one from its first producer to its last consumer. Everything is judged in trace order, which is a correct
execution: where at no task more barriers are open than the machine has, running in trace order never waits for a
barrier, and as all conditions of the device semantics are fixed in the tables, no other order can wait forever
either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from npuc.schedule.errors import ScheduleBroken
from npuc.tasks.program import Barrier, Sync

_SWEEPS = 64  # random graphs need 2 with 16 barriers; with as few barriers as queues mostly 5, a rare one more than 16


@dataclass(eq=False, slots=True)
class Virtual:
    """One virtual barrier: task indices in rising order; every producer stands before every consumer."""

    producers: tuple[int, ...]
    consumers: tuple[int, ...]

    @property
    def first(self) -> int:
        return self.producers[0]

    @property
    def last(self) -> int:
        return self.consumers[-1]


def virtual_barriers(producers: Sequence[tuple[int, ...]]) -> list[Virtual]:
    """One barrier per distinct set of producers, so that each task waits for at most one. producers: as in
    Dependencies.
    """
    consumers: dict[tuple[int, ...], list[int]] = {}
    for task, waited in enumerate(producers):
        if waited:
            consumers.setdefault(waited, []).append(task)
    return [Virtual(posting, tuple(waiting)) for posting, waiting in consumers.items()]


def legalise(barriers: Iterable[Virtual], queues: Sequence[int], limit: int) -> list[Virtual]:
    """The same orderings (and some more) with at most `limit` barriers open at any task, in order of programming.

    queues: number of each task's queue. Where a task opens one too many, two open barriers become one; the pair is
    taken whose new orderings leave the most tasks between producer and consumer. Raises ScheduleBroken where that
    cannot succeed.
    """
    found = sorted(barriers, key=_order)
    for _ in range(_SWEEPS):
        found, cut = _sweep(found, queues, limit)
        if not cut:
            return found
    raise ScheduleBroken(f"{limit} barriers are not enough after {_SWEEPS} sweeps over {len(found)}")


def _sweep(barriers: list[Virtual], queues: Sequence[int], limit: int) -> tuple[list[Virtual], bool]:
    """One pass in trace order; True: barriers were cut at a task, which may have opened one too many before it."""
    waiting = deque(barriers)
    opened: list[Virtual] = []
    closed: list[Virtual] = []
    cut = False
    while waiting:
        now = waiting[0].first
        while waiting and waiting[0].first == now:
            opened.append(waiting.popleft())
        while True:
            closed += [barrier for barrier in opened if barrier.last < now]
            opened = [barrier for barrier in opened if barrier.last >= now]
            if len(opened) <= limit:
                break
            if _join_two(opened, queues):
                continue
            past, present, future = _cut(opened, now)
            if not past and not future:
                listed = "\n".join(f"  {barrier.producers} -> {barrier.consumers}" for barrier in opened)
                raise ScheduleBroken(
                    f"no two of the {len(opened)} barriers open at task {now} can be joined:\n{listed}"
                )
            closed, opened, waiting = closed + past, present, deque(sorted([*waiting, *future], key=_order))
            cut = True
    return sorted(closed + opened, key=_order), cut


def _order(barrier: Virtual) -> tuple[int, int, tuple[int, ...]]:
    """Programming order: a barrier must be there before its first producer starts."""
    return barrier.first, barrier.last, barrier.consumers


def _join_two(opened: list[Virtual], queues: Sequence[int]) -> bool:
    """Replaces two of the open barriers by one; False where each pair has a producer behind a consumer."""
    best, best_slack = (-1, -1), 0
    posted = [barrier.producers[-1] for barrier in opened]
    wanted = [barrier.consumers[0] for barrier in opened]
    for right in range(1, len(opened)):
        for left in range(right):
            slack = min(wanted[left] - posted[right], wanted[right] - posted[left])
            if slack > best_slack:
                best, best_slack = (left, right), slack
    if best_slack <= 0:
        return False
    second = opened.pop(best[1])
    first = opened[best[0]]
    opened[best[0]] = Virtual(
        _ends({*first.producers, *second.producers}, queues, latest=True),
        _ends({*first.consumers, *second.consumers}, queues, latest=False),
    )
    return True


def _cut(opened: list[Virtual], now: int) -> tuple[list[Virtual], list[Virtual], list[Virtual]]:
    """Barriers cut at a task: (done with before it, open across it, posted only after it). Those open across can be
    joined.
    """
    past, present, future = [], [], []
    for barrier in opened:
        posted = tuple(task for task in barrier.producers if task <= now)
        to_post = tuple(task for task in barrier.producers if task > now)
        waited = tuple(task for task in barrier.consumers if task < now)
        to_wait = tuple(task for task in barrier.consumers if task >= now)
        if waited:
            past.append(Virtual(posted, waited))
        if posted:
            present.append(Virtual(posted, to_wait))
        if to_post:
            future.append(Virtual(to_post, to_wait))
    return past, present, future


def _ends(tasks: set[int], queues: Sequence[int], *, latest: bool) -> tuple[int, ...]:
    """Of each queue only the latest or earliest of the tasks: the queue's order says the rest."""
    kept: dict[int, int] = {}
    for task in sorted(tasks, reverse=not latest):
        kept[queues[task]] = task
    return tuple(sorted(kept.values()))


def simplify(barriers: Sequence[Virtual], queues: Sequence[int]) -> list[Virtual]:
    """Without the waits that queue order and the other barriers already imply; equal producers share one again."""
    waited: dict[int, list[Virtual]] = {}
    for barrier in barriers:
        for task in barrier.consumers:
            waited.setdefault(task, []).append(barrier)
    count = max(queues, default=-1) + 1
    last = [-1] * count
    known: list[list[int]] = []
    kept: dict[tuple[int, ...], list[int]] = {}
    for task, queue in enumerate(queues):
        own = last[queue]
        clock = known[own].copy() if own >= 0 else [-1] * count
        clock[queue] = own
        for barrier in sorted(waited.get(task, []), key=lambda item: item.producers[::-1], reverse=True):
            if all(clock[queues[producer]] >= producer for producer in barrier.producers):
                continue
            kept.setdefault(barrier.producers, []).append(task)
            for producer in barrier.producers:
                clock = [max(a, b) for a, b in zip(clock, known[producer], strict=True)]
                clock[queues[producer]] = max(clock[queues[producer]], producer)
        known.append(clock)
        last[queue] = task
    return in_order(Virtual(posting, tuple(waiting)) for posting, waiting in kept.items())


def in_order(barriers: Iterable[Virtual]) -> list[Virtual]:
    """The barriers in order of programming."""
    return sorted(barriers, key=_order)


def assign(barriers: Sequence[Virtual], tasks: int, limit: int) -> tuple[list[Barrier], list[Sync]]:
    """Physical ids in programming order, the id that has been free the longest first; and the barriers of each task."""
    free = deque(range(limit))
    closing: dict[int, list[int]] = {}
    table: list[Barrier] = []
    waits: list[list[int]] = [[] for _ in range(tasks)]
    posts: list[list[int]] = [[] for _ in range(tasks)]
    after = [0] * tasks
    at = 0
    for task in range(tasks):
        while at < len(barriers) and barriers[at].first == task:
            barrier = barriers[at]
            if not free:
                raise ScheduleBroken(f"barrier {at} finds no free id at task {task}: more than {limit} are open")
            number = free.popleft()
            table.append(Barrier(number, len(barrier.producers), len(barrier.consumers)))
            closing.setdefault(barrier.last, []).append(number)
            at += 1
            for producer in barrier.producers:
                posts[producer].append(number)
                after[producer] = at
            for consumer in barrier.consumers:
                waits[consumer].append(number)
                after[consumer] = at
        free.extend(closing.pop(task, ()))
    return table, [Sync(tuple(sorted(w)), tuple(sorted(p)), a) for w, p, a in zip(waits, posts, after, strict=True)]
