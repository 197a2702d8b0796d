"""Offline placement: an offset for every local buffer, from its life in trace order.

Greedy best fit: buffers are taken in a fixed order, each goes into the smallest hole between the buffers placed
before it that live at the same time. Three orders are tried, because none is best on every graph. Where a memory is
too small, the stretched parts of the lives (npuc.schedule.lives) are given up step by step, only where it is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from npuc.schedule.errors import OverflowRefused, PinRefused
from npuc.schedule.lives import Lives, local_lives
from npuc.tasks.graph import Buffer, TaskGraph

_BIN = 32  # tasks per bin of the index over time: lives are some tens of tasks long
_LISTED = 8  # buffers named in an overflow message
_FULL = 0.98  # of the fullest task in a life: around such tasks stretches are given up first
_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Placement:
    """offsets: bytes from the start of the buffer's memory. peaks: bytes used of each memory that holds local
    buffers.
    """

    offsets: dict[Buffer, int]
    peaks: dict[str, int]


def place(
    graph: TaskGraph,
    memory_bytes: dict[str, int],
    prefetch: int,
    overlap: int,
    together: Mapping[Buffer, Buffer] | None = None,
) -> Placement:
    """Places every LOCAL buffer of the graph.

    memory_bytes: sizes; a memory that is absent has no limit. prefetch, overlap: tasks by which lives are stretched
    where memory allows; together: buffers that shall lie at the same place (npuc.schedule.lives). Raises
    OverflowRefused, or PinRefused for hand-placed buffers that collide.
    """
    offsets: dict[Buffer, int] = {}
    peaks: dict[str, int] = {}
    for memory, lives in local_lives(graph, prefetch, overlap, together).items():
        found = _place_memory(memory, lives, memory_bytes.get(memory, _UNLIMITED), len(graph.tasks))
        offsets.update(zip(lives.buffers, found, strict=True))
        peaks[memory] = max(offset + buffer.nbytes for offset, buffer in zip(found, lives.buffers, strict=True))
    return Placement(offsets, peaks)


def _place_memory(memory: str, lives: Lives, limit: int, tasks: int) -> list[int]:
    """Offsets of the buffers of one memory, with as much of the stretched lives as fits."""
    _check_pins(memory, lives, limit)
    if lives.load(tasks, stretched=False).max() > limit:
        raise _overflow(memory, lives, limit, tasks, [])
    while True:
        while (over := lives.load(tasks, stretched=True) > limit).any() and lives.shrink(over):
            pass
        best: list[int] | None = None
        failed: list[int] = []
        for order in _orders(lives):
            offsets, missing = _greedy(lives, order, limit)
            if missing:
                failed = failed or missing
            elif best is None or _peak(lives, offsets) < _peak(lives, best):
                best = offsets
                if limit != _UNLIMITED:
                    break  # any placement that fits is as good as another
        if best is not None:
            return best
        if not any(lives.shrink(_crowded(lives, failed, tasks, share)) for share in (_FULL, 0.0)):
            raise _overflow(memory, lives, limit, tasks, failed)


def _crowded(lives: Lives, failed: list[int], tasks: int, share: float) -> np.ndarray:
    """The tasks, bool each, in the lives of buffers that found no hole at which the memory is fullest: within `share`
    of the most in that life. A long life crosses places that have room, where stretches need not be given up."""
    load = lives.load(tasks, stretched=True)
    tight = np.zeros(tasks, np.bool_)
    for index in failed:
        life = slice(int(lives.begin[index]), int(lives.last[index]) + 1)
        tight[life] |= load[life] >= share * load[life].max()
    return tight


def _orders(lives: Lives) -> list[list[int]]:
    """Orders of placement: largest first, most bytes x tasks first, trace order. Ties go to the earlier buffer."""
    count = len(lives.buffers)
    area = lives.nbytes * (lives.last - lives.begin + 1)
    keys = (-lives.nbytes, -area, np.zeros(count, np.int64))
    pinned = np.array([buffer.pinned is None for buffer in lives.buffers])
    return [np.lexsort((np.arange(count), lives.begin, key, pinned)).tolist() for key in keys]


def _greedy(lives: Lives, order: list[int], limit: int) -> tuple[list[int], list[int]]:
    """Best fit in the given order: (offset of each buffer, buffers that found no hole below `limit`). A group is placed
    where its first buffer stands in the order.
    """
    begins, ends, sizes = lives.begin.tolist(), lives.last.tolist(), lives.nbytes.tolist()
    bins: list[list[int]] = [[] for _ in range(max(ends) // _BIN + 1)]
    offsets = [-1] * len(order)
    groups, group_of = lives.groups(), lives.group.tolist()
    missing = []
    for first in order:
        members = groups.pop(group_of[first], ())
        if not members:
            continue
        spans = [(begins[index], ends[index]) for index in members]
        buffer = lives.buffers[first]
        if buffer.pinned is not None:
            offset = buffer.pinned
        else:
            near = {
                other
                for begin, end in spans
                for filled in bins[begin // _BIN : end // _BIN + 1]
                for other in filled
                if begins[other] <= end and ends[other] >= begin
            }
            taken = sorted((offsets[other], offsets[other] + sizes[other]) for other in near)
            offset = _best_hole(taken, sizes[first], buffer.align, limit)
        if offset < 0:
            missing.append(first)
            continue
        for index, (begin, end) in zip(members, spans, strict=True):
            offsets[index] = offset
            for filled in bins[begin // _BIN : end // _BIN + 1]:
                filled.append(index)
    return offsets, missing


def _best_hole(taken: list[tuple[int, int]], size: int, align: int, limit: int) -> int:
    """Aligned start of the smallest hole of at least `size` bytes between the taken ranges (sorted), -1 if there is
    none.
    """
    best, best_slack = -1, _UNLIMITED
    low = 0
    for start, stop in taken:
        offset = -(-low // align) * align
        slack = start - offset - size
        if 0 <= slack < best_slack:
            best, best_slack = offset, slack
        low = max(low, stop)
    offset = -(-low // align) * align
    if best < 0 and offset + size <= limit:
        return offset
    return best


def _peak(lives: Lives, offsets: list[int]) -> int:
    return max(offset + buffer.nbytes for offset, buffer in zip(offsets, lives.buffers, strict=True))


def _check_pins(memory: str, lives: Lives, limit: int) -> None:
    """Refuses hand-placed buffers outside the memory, or on the same bytes at the same time."""
    pinned = [(index, buffer, buffer.pinned) for index, buffer in enumerate(lives.buffers) if buffer.pinned is not None]
    for place_in_list, (index, buffer, start) in enumerate(pinned):
        if start < 0 or start % buffer.align or start + buffer.nbytes > limit:
            raise PinRefused(
                f"{memory}: {_named(buffer)} is pinned at {start}, which is not a multiple of {buffer.align} "
                f"or ends outside the memory's {limit} B"
            )
        for other_index, other, other_start in pinned[:place_in_list]:
            same_bytes = start < other_start + other.nbytes and other_start < start + buffer.nbytes
            if (
                same_bytes
                and lives.first[index] <= lives.last[other_index]
                and lives.first[other_index] <= lives.last[index]
            ):
                raise PinRefused(
                    f"{memory}: {_named(buffer)} and {_named(other)} "
                    "are pinned to the same bytes and live at the same time"
                )


def _overflow(memory: str, lives: Lives, limit: int, tasks: int, failed: list[int]) -> OverflowRefused:
    """The error for lives that do not fit even unstretched: who is live at the worst task, and what would fit."""
    load = lives.load(tasks, stretched=False)
    task = int(load.argmax()) if load.max() > limit else int(lives.first[failed[0]])
    live = [i for i in range(len(lives.buffers)) if lives.first[i] <= task <= lives.last[i]]
    live.sort(key=lambda i: (-lives.nbytes[i], i))
    needed = int(load[task])
    lines = [f"{memory} overflows: {len(live)} buffers live at task {task} need {needed} B, there are {limit} B"]
    lines += [f"  {lives.nbytes[i]:>10} B  {_named(lives.buffers[i])}" for i in live[:_LISTED]]
    if len(live) > _LISTED:
        lines.append(
            f"  {int(sum(lives.nbytes[i] for i in live[_LISTED:])):>10} B  in {len(live) - _LISTED} smaller buffers"
        )
    if needed > limit:
        lines.append(_remedy(needed - limit, [(int(lives.nbytes[i]), lives.buffers[i]) for i in live]))
    else:
        lines.append(
            f"they fit in sum but not side by side; {_named(lives.buffers[failed[0]])} found no hole: "
            "make it or its neighbours smaller"
        )
    crowded: tuple[int, ...] = ()
    if needed <= limit:
        fullest = (first + int(load[first : last + 1].argmax()) for first, last in lives.ends(failed))
        crowded = tuple(sorted(set(fullest)))
    return OverflowRefused("\n".join(lines), memory=memory, needed=needed, available=limit, task=task, crowded=crowded)


def _remedy(excess: int, live: list[tuple[int, Buffer]]) -> str:
    """The smallest change that fits: fewest bytes off the fewest of the largest buffers."""
    size, largest = live[0]
    if excess < size:
        return f"it fits if {_named(largest)} shrinks by {excess} B to {size - excess} B"
    total, count = 0, 0
    while total <= excess and count < len(live):
        total += live[count][0]
        count += 1
    share = -(-100 * excess // total)
    return f"it fits if the {count} largest together shrink by {excess} B, {share} % of their {total} B: smaller tiles"


def _named(buffer: Buffer) -> str:
    return f"{buffer.name} ({buffer.where})" if buffer.where else buffer.name
