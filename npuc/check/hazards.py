"""Proof that no two unordered tasks touch a common byte of which one writes.

For each task the tasks before it in trace order that may still run are, in each other queue, one run of neighbours:
those that happen-before (npuc.check.order) does not know as complete. Their regions are compared with the task's own,
first by span, then by the exact bytes. As all orderings point forward in trace order, nothing found means: every
execution that the device may choose computes what trace order computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.check.finding import Finding
from npuc.tasks.graph import Buffer, CopyOp, Region, Role, Task


@dataclass(frozen=True, slots=True)
class Touch:
    """One region of one task. space: number of its address space; low, high: bytes it can touch there."""

    task: int
    region: Region
    space: int
    low: int
    high: int
    writes: bool
    shift: str  # step field that moves the region
    below: str  # step field that bounds its rows from above


def hazards(
    tasks: Sequence[Task],
    queues: Sequence[str],
    offsets: Mapping[Buffer, int],
    names: Sequence[str],
    place: np.ndarray,
    done: np.ndarray,
) -> list[Finding]:
    """Unordered conflicting pairs. names, place, done: from npuc.check.order.complete_before."""
    touches = _touches(tasks, offsets)
    by_queue: dict[str, list[Touch]] = {name: [] for name in names}
    own: list[list[Touch]] = [[] for _ in tasks]
    for touch in touches:
        by_queue[queues[touch.task]].append(touch)
        own[touch.task].append(touch)
    columns = {
        name: np.array([(t.space, t.low, t.high, t.writes) for t in by_queue[name]], np.int64).reshape(-1, 4)
        for name in names
    }
    starts = {
        name: np.searchsorted([place[t.task] for t in by_queue[name]], np.arange(queues.count(name) + 1))
        for name in names
    }
    before = dict.fromkeys(names, 0)
    findings = []
    for task, queue in enumerate(queues):
        for at, name in enumerate(names):
            if name == queue or done[task, at] >= before[name]:
                continue
            first, stop = starts[name][done[task, at]], starts[name][before[name]]
            space, low, high, writes = columns[name][first:stop].T
            for touch in own[task]:
                near = (space == touch.space) & (low < touch.high) & (high > touch.low)
                if not touch.writes:
                    near &= writes == 1
                for hit in np.flatnonzero(near):
                    other = by_queue[name][first + hit]
                    if conflict(other, touch, offsets):
                        findings.append(_finding(tasks, other, touch))
        before[queue] += 1
    return findings


def _touches(tasks: Sequence[Task], offsets: Mapping[Buffer, int]) -> list[Touch]:
    """All regions of all tasks, in trace order, without the buffers that nothing writes."""
    mutable = {_space(region.buffer) for task in tasks for region in task.writes}
    spaces: dict[str | int, int] = {}
    touches = []
    for index, task in enumerate(tasks):
        copy = task.op if isinstance(task.op, CopyOp) else None
        for writes, regions in ((False, task.reads), (True, task.writes)):
            for region in regions:
                buffer = region.buffer
                if _space(buffer) not in mutable or not region.elements:
                    continue
                base = offsets.get(buffer, 0)
                low, high = region.span
                shift = below = ""
                if copy is not None:
                    shift = (copy.shift_dst if writes else copy.shift_src) or ""
                    if copy.valid is not None and not writes and not shift:
                        below = copy.valid.field if _starts_at_zero(region, copy) else ""
                if shift:
                    high = buffer.nbytes
                space = spaces.setdefault(_space(buffer), len(spaces))
                touches.append(Touch(index, region, space, base + low, base + high, writes, shift, below))
    return touches


def _space(buffer: Buffer) -> str | int:
    return buffer.memory if buffer.role is Role.LOCAL else id(buffer)


def _starts_at_zero(region: Region, copy: CopyOp) -> bool:
    """Whether the rows that `valid` leaves end at row n_past of the buffer, as far as the region tells.

    A region that begins at row c must be cut to n_past - c. Its row is known modulo the stride of the next outer
    dimension.
    """
    valid = copy.valid
    assert valid is not None
    row = region.stride[copy.row_dim]
    outer = [
        step for dim, step in enumerate(region.stride) if dim < copy.row_dim and region.shape[dim] > 1 and step > row
    ]
    if row <= 0 or not outer:
        return row > 0
    return (region.offset % min(outer)) // row + valid.add <= 0


def conflict(first: Touch, second: Touch, offsets: Mapping[Buffer, int]) -> bool:
    """Whether two touches of one space share a byte for some step block; their spans do."""
    if first.shift != second.shift:
        return not ((first.shift and first.shift == second.below) or (second.shift and second.shift == first.below))
    starts_a, run_a = _runs(first.region, offsets)
    starts_b, run_b = _runs(second.region, offsets)
    # a run of b that begins at s meets a run of a that begins in the open interval (s - run_a, s + run_b)
    return bool(
        (
            np.searchsorted(starts_a, starts_b + run_b, "left") > np.searchsorted(starts_a, starts_b - run_a, "right")
        ).any()
    )


def _runs(region: Region, offsets: Mapping[Buffer, int]) -> tuple[np.ndarray, int]:
    """(sorted first bytes of the region's runs of adjacent bytes, bytes of one run)."""
    run = region.dtype.nbytes
    dims = list(zip(region.shape, region.stride, strict=True))
    while dims and dims[-1][1] == run:
        run *= dims.pop()[0]
    starts = np.array([offsets.get(region.buffer, 0) + region.offset], np.int64)
    for extent, step in dims:
        starts = np.add.outer(starts, np.arange(extent) * step).ravel()
    return np.sort(starts), run


def _finding(tasks: Sequence[Task], first: Touch, second: Touch) -> Finding:
    words = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}
    kind = words[first.writes, second.writes]

    def named(touch: Touch) -> str:
        origin = tasks[touch.task].origin
        where = " ".join(part for part in (origin.node, origin.kernel, origin.stage) if part)
        return f"task {touch.task}{' ' + where if where else ''} on {touch.region.buffer}"

    return Finding(kind, f"nothing orders {named(first)} and {named(second)}")
