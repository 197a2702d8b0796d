"""Addresses: every local buffer inside its memory, aligned, and never on bytes of another that is live at the same
time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

from npuc.check.finding import Finding
from npuc.tasks.graph import Buffer, Role, Task


def check_regions(tasks: Sequence[Task]) -> list[Finding]:
    """Regions that leave their buffer, writes of read-only buffers, and local buffers read before any write."""
    findings = []
    written: set[Buffer] = set()
    for index, task in enumerate(tasks):
        for word, regions in (("reads", task.reads), ("writes", task.writes)):
            for region in regions:
                low, high = region.span
                if low < 0 or high > region.buffer.nbytes:
                    text = f"task {index} {word} bytes {low} to {high} of {region.buffer}"
                    findings.append(Finding("bounds", text))
                if word == "writes" and region.buffer.role in (Role.CONST, Role.INPUT, Role.STEP):
                    findings.append(Finding("read-only", f"task {index} writes {region.buffer}"))
        for region in task.reads:
            if region.buffer.role is Role.LOCAL and region.buffer not in written:
                findings.append(
                    Finding("unwritten", f"task {index} reads {region.buffer}, which no earlier task writes")
                )
        written.update(region.buffer for region in task.writes)
    return findings


def check_placement(
    tasks: Sequence[Task], offsets: Mapping[Buffer, int], peaks: Mapping[str, int], memory_bytes: Mapping[str, int]
) -> list[Finding]:
    """Offsets of the local buffers against memory sizes, alignment, pins, peaks and each other."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for index, task in enumerate(tasks):
        for region in (*task.reads, *task.writes):
            if region.buffer.role is Role.LOCAL:
                first.setdefault(region.buffer, index)
                last[region.buffer] = index
    findings = []
    ends: dict[str, int] = {}
    for buffer in first:
        offset = offsets.get(buffer)
        if offset is None:
            findings.append(Finding("unplaced", f"{buffer} has no offset"))
            continue
        end = offset + buffer.nbytes
        size = memory_bytes.get(buffer.memory)
        if offset < 0 or (size is not None and end > size):
            findings.append(Finding("outside", f"{buffer} lies at {offset} to {end}, {buffer.memory} has {size} B"))
        if offset % buffer.align:
            findings.append(Finding("alignment", f"{buffer} lies at {offset}, not a multiple of {buffer.align}"))
        if buffer.pinned is not None and offset != buffer.pinned:
            findings.append(Finding("pin", f"{buffer} lies at {offset}, its author wants {buffer.pinned}"))
        ends[buffer.memory] = max(ends.get(buffer.memory, 0), end)
    for memory in sorted({*ends, *peaks}):
        if peaks.get(memory, 0) != ends.get(memory, 0):
            text = f"{memory}: the peak is given as {peaks.get(memory, 0)} B, buffers end at {ends.get(memory, 0)} B"
            findings.append(Finding("peak", text))
    return findings + _check_overlap(first, last, offsets)


def _check_overlap(
    first: Mapping[Buffer, int], last: Mapping[Buffer, int], offsets: Mapping[Buffer, int]
) -> list[Finding]:
    """Pairs of buffers with common bytes and a common task in their lives: a sweep over the trace per memory."""
    events: list[
        tuple[int, int, int, Buffer]
    ] = []  # at one task, lives begin before lives end: both ends belong to a life
    for order, buffer in enumerate(first):
        if buffer in offsets and buffer.nbytes:
            events.append((first[buffer], 0, order, buffer))
            events.append((last[buffer], 1, order, buffer))
    findings = []
    live: dict[
        str, list[tuple[int, int, int, Buffer]]
    ] = {}  # (offset, order, end, buffer), sorted, disjoint until a finding
    for _, ends, order, buffer in sorted(events, key=lambda event: event[:3]):
        offset = offsets[buffer]
        entry = (offset, order, offset + buffer.nbytes, buffer)
        members = live.setdefault(buffer.memory, [])
        if ends:
            members.pop(bisect_left(members, (offset, order)))
            continue
        at = bisect_left(members, (offset, order))
        for neighbour in members[max(0, at - 1) : at + 1]:
            if neighbour[0] < entry[2] and offset < neighbour[2]:
                other = f"{neighbour[3]} at {neighbour[0]}"
                text = f"{buffer} at {offset} and {other} share bytes and are live at task {first[buffer]}"
                findings.append(Finding("overlap", text))
        insort(members, entry, key=lambda item: item[:2])
    return findings
