"""An order of an entry's tasks that its queues and barriers allow, found without running any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from npurt.abi.records import Queue
from npurt.errors import BlobError
from npurt.exec.barriers import BARRIER_IDS, BarrierMachine, Sync, mask_ids
from npurt.image import Tables, TaskRef

MAX_BARRIER_COUNT = 1 << 15


def allowed_order(
    tables: Tables, ranges: Mapping[str, range], priority: Sequence[Queue] = tuple(Queue)
) -> tuple[TaskRef, ...]:
    """Runs queues and barriers without values, which proves that the entry completes.

    ranges: the entry's rows of "dma", "dpu", "shave" and "barrier". priority: each queue goes as far as it may before
    the next is asked; a program that is synchronised rightly computes the same for every priority.
    Errors: DeadlockError; BlobError where the barrier table and the tasks contradict each other.
    """
    rows = ranges["barrier"]
    barriers: list[tuple[int, int, int]] = []
    for number, producers, consumers, _ in tables.barriers[rows.start : rows.stop].tolist():
        if number >= BARRIER_IDS or not 0 < producers < MAX_BARRIER_COUNT or consumers >= MAX_BARRIER_COUNT:
            raise BlobError(f"barrier id {number} with {producers} producers and {consumers} consumers")
        barriers.append((number, producers, consumers))
    tasks = _task_refs(tables, ranges)
    queues = [[task for task in tasks if task.queue is queue] for queue in priority]
    return tuple(BarrierMachine(queues, read_sync(tables, ranges), barriers).run())


def _task_refs(tables: Tables, ranges: Mapping[str, range]) -> list[TaskRef]:
    """The tasks of an entry, one table after the other."""
    refs: list[TaskRef] = []
    names: dict[int, str] = {}
    for table, fixed in (("dma", None), ("dpu", Queue.DPU), ("shave", Queue.SHAVE)):
        rows = ranges[table]
        records = getattr(tables, table)[rows.start : rows.stop]
        queues = [fixed] * len(rows) if fixed else list(map(Queue, records["queue"].tolist()))
        for row, queue, node in zip(rows, queues, records["node"].tolist(), strict=True):
            if node not in names:
                names[node] = tables.node(node)
            refs.append(TaskRef(table, row, queue, names[node], len(refs)))
    return refs


def read_sync(tables: Tables, ranges: Mapping[str, range]) -> list[Sync]:
    """The barriers of each task, in the order of `_task_refs`; equal masks are taken apart once."""
    known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def ids(words: list[int]) -> tuple[int, ...]:
        key = tuple(words)
        if key not in known:
            known[key] = mask_ids(words)
        return known[key]

    found = []
    for table in ("dma", "dpu", "shave"):
        records = getattr(tables, table)[ranges[table].start : ranges[table].stop]
        columns = (records[name].tolist() for name in ("wait", "post", "start_after"))
        found += [Sync(ids(wait), ids(post), start_after) for wait, post, start_after in zip(*columns, strict=True)]
    return found
