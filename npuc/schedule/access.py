"""One region of one task on placed addresses, and whether two such accesses must be ordered.

Rows of state: a load with `valid` = n_past reads rows below n_past, a store shifted by n_past writes rows from n_past
on. These two never meet, so that a load of the past need not wait for the store of the new rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from npuc.schedule.bytes import Shape, overlap, shape_of
from npuc.tasks.graph import Buffer, CopyOp, Role, Task

Space = str | Buffer
"""Where addresses count: a memory's name for local buffers, which share it; any other buffer is memory of its own."""


@dataclass(frozen=True, slots=True)
class Access:
    """low, high: bytes of `space` that can be touched; low is the first byte of `shape` where nothing is shifted.

    shift: the step field that moves the region; below: the step field that bounds its rows from above.
    """

    task: int
    space: Space
    writes: bool
    low: int
    high: int
    shape: Shape
    shift: str
    below: str

    def conflicts(self, other: Access) -> bool:
        """Whether the two, of one space, share a byte for some step block, and one of them writes it."""
        if not (self.writes or other.writes) or self.low >= other.high or other.low >= self.high:
            return False
        if self.shift == other.shift:
            return overlap(self.low, self.shape, other.low, other.shape)
        return not ((self.shift and self.shift == other.below) or (other.shift and other.shift == self.below))


def space_of(buffer: Buffer) -> Space:
    """The address space of a buffer."""
    return buffer.memory if buffer.role is Role.LOCAL else buffer


def accesses_of(index: int, task: Task, offsets: Mapping[Buffer, int]) -> Iterator[Access]:
    """The accesses of a task, reads first; empty regions have none. offsets: of the local buffers."""
    copy = task.op if isinstance(task.op, CopyOp) else CopyOp()
    for writes, regions in ((False, task.reads), (True, task.writes)):
        shift = (copy.shift_dst if writes else copy.shift_src) or ""
        below = copy.valid.field if copy.valid is not None and not writes and not shift else ""
        for region in regions:
            shape = shape_of(region.dtype, region.shape, region.stride)
            if shape is None:
                continue
            base = offsets.get(region.buffer, 0)
            low = base + region.offset - shape.back
            high = base + region.buffer.nbytes if shift else low + shape.reach
            yield Access(index, space_of(region.buffer), writes, low, high, shape, shift, below)
