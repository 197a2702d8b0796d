"""The scheduled form of one entry: every local buffer has an address, every task a queue and its barriers.

It is plain data: the writer of the blob, the checker and the reports read it, and none of them needs the scheduler.

Device semantics of the barrier table, which scheduler, simulator and checker share:

- A queue runs its tasks one at a time, in the order of `EntryProgram.tasks`; queues run beside each other.
- Barriers are programmed in table order. Row v is programmed as soon as row v - 1 has been and its physical id is free.
- A task may start when `start_after` rows have been programmed and every id that it waits for has no producer left.
  Starting takes one consumer from each of these barriers; completion takes one producer from each that it posts.
- An id is free again when producers and consumers of the barrier that holds it are both zero.
- The entry is complete when all queues are drained (`EntryProgram.last_tasks` names the last task of each).
"""

from __future__ import annotations

from dataclasses import dataclass

from npuc.tasks.graph import Buffer, CopyOp, GatherOp, ScatterOp, Task


@dataclass(frozen=True, slots=True)
class Barrier:
    """One row of the barrier table: a physical id, and how many tasks post and wait for it while it holds the id."""

    id: int
    producers: int
    consumers: int


@dataclass(frozen=True, slots=True)
class Sync:
    """Barriers of one task: physical ids in rising order, and how many rows must have been programmed before it starts.

    start_after is one more than the highest row that the task waits for or posts, 0 where it touches none. The row
    meant by an id is the last one below start_after that holds the id.
    """

    wait: tuple[int, ...] = ()
    post: tuple[int, ...] = ()
    start_after: int = 0


@dataclass(frozen=True, slots=True)
class Spills:
    """Transfers that the scheduler added because on-chip buffers did not fit together.

    stores: tasks that move a buffer to DDR scratch; loads: tasks that bring one back, from there or from where it
    came; nbytes: what all of them move.
    """

    stores: int = 0
    loads: int = 0
    nbytes: int = 0

    def __add__(self, other: Spills) -> Spills:
        return Spills(self.stores + other.stores, self.loads + other.loads, self.nbytes + other.nbytes)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of the schedule had to be found.

    scheduled: tasks that were placed, ordered and given barriers. stamped: tasks that repeat these, shifted. periods:
    how often the repeated stretch of tasks stands in the entry; 0 where nothing repeats. why: the reason where a
    repetition was found and the entry was scheduled task by task all the same.
    """

    scheduled: int = 0
    stamped: int = 0
    periods: int = 0
    why: str = ""


@dataclass(frozen=True)
class EntryProgram:
    """One entry, ready to be written.

    tasks: in trace order. queues: for each task the name of its in-order queue. offsets: first byte of each LOCAL
    buffer in its memory (`Buffer.memory`; a local buffer in "ddr" is an offset in the scratch section). barriers: the
    table, in programming order. sync: for each task its barriers. peaks: bytes used of each memory. memory_bytes:
    size of each memory of the target; a memory without a limit is absent. spills: tasks that the scheduler added.
    effort: how the schedule was found.
    """

    entry: str
    rows: int
    capacity: int
    tasks: list[Task]
    queues: list[str]
    offsets: dict[Buffer, int]
    barriers: list[Barrier]
    sync: list[Sync]
    peaks: dict[str, int]
    memory_bytes: dict[str, int]
    spills: Spills = Spills()
    effort: Effort = Effort()

    @property
    def cmx_peak(self) -> int:
        """Bytes of the tile's scratchpad, from its start."""
        return self.peaks.get("cmx", 0)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of DDR scratch."""
        return self.peaks.get("ddr", 0)

    @property
    def ddr_bytes(self) -> int:
        """Bytes that the tasks read from and write to DDR where every row is valid and every predicate holds."""
        total = 0
        for task in self.tasks:
            if isinstance(task.op, ScatterOp):  # its rows, of all those it may choose from
                total += task.reads[0].nbytes if task.writes[0].buffer.memory == "ddr" else 0
                continue
            total += sum(region.nbytes for region in task.writes if region.buffer.memory == "ddr")
            if isinstance(task.op, CopyOp):
                total += sum(region.nbytes for region in task.reads if region.buffer.memory == "ddr")
            elif isinstance(task.op, GatherOp) and task.reads[0].buffer.memory == "ddr":
                total += task.writes[0].nbytes
        return total

    @property
    def last_tasks(self) -> dict[str, int]:
        """The last task of each queue, in order of the queues' first tasks: when these have completed, so has the
        entry.
        """
        return {queue: index for index, queue in enumerate(self.queues)}
