"""Which values may stay on the chip: lives over the calls, the peak they make, and whom to send to DDR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuc.lower.context import KernelCall
from npuc.tasks import Buffer, Role


@dataclass(frozen=True)
class Life:
    """First and last call that touches a buffer."""

    buffer: Buffer
    first: int
    last: int


def lives(calls: Sequence[KernelCall], memory: str) -> list[Life]:
    """Lives of the LOCAL buffers in `memory`, in order of first use."""
    span: dict[Buffer, list[int]] = {}
    for index, call in enumerate(calls):
        for region in call.arrays:
            if region is None:
                continue
            buffer = region.buffer
            if buffer.role is Role.LOCAL and buffer.memory == memory:
                span.setdefault(buffer, [index, index])[1] = index
    return [Life(buffer, first, last) for buffer, (first, last) in span.items()]


def live_bytes(found: Sequence[Life], calls: int) -> list[int]:
    """Bytes that are live during each call, each buffer rounded up to its alignment."""
    change = [0] * (calls + 1)
    for life in found:
        size = -(-life.buffer.nbytes // life.buffer.align) * life.buffer.align
        change[life.first] += size
        change[life.last + 1] -= size
    total, result = 0, []
    for delta in change[:-1]:
        total += delta
        result.append(total)
    return result


def largest_at(found: Sequence[Life], call: int) -> Buffer | None:
    """The largest buffer that is live during `call`; ties: the first made."""
    live = [life.buffer for life in found if life.first <= call <= life.last]
    return max(live, key=lambda buffer: buffer.nbytes, default=None)


def crowding(calls: Sequence[KernelCall], memory: str, budget: int) -> frozenset[str]:
    """Names of the values to send to DDR so that no call has more than `budget` bytes of values: at the fullest call
    the largest, until it holds everywhere."""
    found = lives(calls, memory)
    moved: set[str] = set()
    while True:
        live = live_bytes(found, len(calls))
        if not live or max(live) <= budget:
            return frozenset(moved)
        largest = largest_at(found, live.index(max(live)))
        assert largest is not None, "a call with live bytes has a live buffer"
        moved.add(largest.name)
        found = [life for life in found if life.buffer is not largest]
