"""Tables as plain Python rows, and the tasks of an entry in trace order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.report.reader import Blob
from npurt.abi import blob
from npurt.abi.records import Queue
from npurt.errors import BlobError

QUEUE_NAMES = {Queue.DMA_IN: "dma.in", Queue.DMA_OUT: "dma.out", Queue.DPU: "dpu", Queue.SHAVE: "shave"}
TASK_TABLES = {"dma": blob.NAME_DMA, "dpu": blob.NAME_DPU, "shave": blob.NAME_SHAVE}
Record = dict[str, Any]  # one row by field name; sub-array fields are lists


@dataclass(frozen=True)
class TaskRow:
    """One task. table: dma, dpu or shave; row: its number there; coord: the places that count."""

    table: str
    row: int
    record: Record
    node: str
    kernel: str
    stage: str
    coord: tuple[int, ...]
    sequence: int

    @property
    def queue(self) -> str:
        return QUEUE_NAMES[Queue(self.record["queue"])] if self.table == "dma" else self.table


def records(table: np.ndarray) -> list[Record]:
    """Rows as dicts; `tolist` once per column is some ten times faster than reading each row."""
    names = table.dtype.names or ()
    return [dict(zip(names, row, strict=True)) for row in zip(*(table[name].tolist() for name in names), strict=True)]


class TaskRows:
    """The tasks of one blob. BlobError where its tables contradict each other."""

    def __init__(self, image: Blob) -> None:
        self.image = image
        self.entries = records(image.table(blob.NAME_ENTRIES))
        self._tables = {name: records(image.table(section)) for name, section in TASK_TABLES.items()}
        self._origins = records(image.table(blob.NAME_ORIGINS))
        total = sum(len(table) for table in self._tables.values())
        if len(self._origins) != total:
            raise BlobError(f"{total} tasks, {len(self._origins)} origins; one per task was expected")

    def of(self, entry: Record) -> list[TaskRow]:
        """The tasks of an entry in trace order."""
        tasks, start = [], 0
        for name, table in self._tables.items():
            first, count = entry[f"{name}_first"], entry[f"{name}_count"]
            if first + count > len(table):
                raise BlobError(
                    f"entry {self.image.name(entry['name'])} has rows {first} to {first + count} of "
                    f"{TASK_TABLES[name]}, which has {len(table)}"
                )
            tasks += [self._task(name, i, table[i], self._origins[start + i]) for i in range(first, first + count)]
            start += len(table)
        return sorted(tasks, key=lambda task: task.sequence)

    def _task(self, table: str, row: int, record: Record, origin: Record) -> TaskRow:
        name = self.image.name
        coord = tuple(origin["coord"][: origin["rank"]])
        kernel, stage = name(origin["kernel"]), name(origin["stage"])
        return TaskRow(table, row, record, name(record["node"]), kernel, stage, coord, origin["sequence"])
