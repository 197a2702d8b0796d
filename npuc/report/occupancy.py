"""How much of the scratchpad holds data at each moment of a run.

In pages of 1 KiB: a page is in use from the start of a write to the end of the last read before the next write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npurt.abi.records import NO_BASE, BaseKind, DmaOp, DpuFlag
from npurt.image import Entry, Image
from npurt.timing import Timing
from npurt.timing.transfers import ITEM_BITS, ITEM_BYTES

PAGE = 1024


@dataclass(frozen=True)
class Access:
    """Pages [low, high) that a task reads or writes."""

    task: int
    low: int
    high: int
    writes: bool


def occupancy(image: Image, entry: Entry, timing: Timing) -> list[tuple[int, int]]:
    """(picoseconds, bytes in use from then on), in the order of time."""
    accesses = sorted(accesses_of(image, entry), key=lambda access: (timing.times.start[access.task], access.writes))
    pages = max((access.high for access in accesses), default=0)
    born, used = np.full(pages, -1, np.int64), np.zeros(pages, np.int64)
    steps: dict[int, int] = {}

    def close(begins: np.ndarray, ends: np.ndarray) -> None:
        for times, change in ((begins, PAGE), (ends, -PAGE)):
            for time, count in zip(*np.unique(times, return_counts=True), strict=True):
                steps[int(time)] = steps.get(int(time), 0) + change * int(count)

    for access in accesses:
        if not timing.active[access.task]:
            continue
        part = slice(access.low, access.high)
        if access.writes:
            old = born[part] >= 0
            close(born[part][old], used[part][old])
            born[part] = timing.times.start[access.task]
        used[part] = np.maximum(used[part], timing.times.end[access.task])
    close(born[born >= 0], used[born >= 0])
    times = sorted(steps)
    levels = np.cumsum([steps[time] for time in times], dtype=np.int64).tolist()
    return list(zip(times, levels, strict=True))


def accesses_of(image: Image, entry: Entry) -> Iterator[Access]:
    """Every access to the scratchpad, one table after the other."""
    tables = image.tables
    on_chip = np.append(tables.bases["kind"] == BaseKind.CMX, False)
    count = len(on_chip) - 1

    def pages(task: np.ndarray, base: np.ndarray, low: np.ndarray, size: np.ndarray, writes: bool) -> Iterator[Access]:
        for at in np.flatnonzero(on_chip[np.minimum(base, count)] & (size > 0)).tolist():
            first, last = int(low[at]), int(low[at] + size[at])
            yield Access(int(task[at]), first // PAGE, -(-last // PAGE), writes)

    dma = tables.dma[entry.dma.start : entry.dma.stop]
    tasks = np.arange(len(dma))
    for side, writes, chooses in (("src", False, DmaOp.GATHER), ("dst", True, DmaOp.SCATTER)):
        reach = dma["size"].astype(np.int64) - 1
        rows = reach[tasks, dma["row_dim"]]
        reach[tasks, dma["row_dim"]] = np.where(dma["op"] == chooses, dma["index_bound"].astype(np.int64) - 1, rows)
        size = (reach * dma[f"{side}_stride"]).sum(1) + ITEM_BYTES[dma[f"{side}_type"]]
        base = np.where(dma["op"] == DmaOp.FILL, NO_BASE, dma["src_base"]) if side == "src" else dma["dst_base"]
        yield from pages(tasks, base, dma[f"{side}_offset"].astype(np.int64), size, writes)
    yield from _products(tables.dpu[entry.dpu.start : entry.dpu.stop], len(dma), pages)
    shave = tables.shave[entry.shave.start : entry.shave.stop]
    first = len(dma) + len(entry.dpu)
    for at, record in enumerate(shave):
        program = tables.programs[int(record["kernel"])]
        rows = tables.shave_args[int(record["arg_first"]) : int(record["arg_first"]) + int(record["arg_count"])]
        for spec, row in zip(program.args, rows, strict=True):
            if not on_chip[min(int(row["base"]), count)] or spec.high <= spec.low:
                continue
            low, high = int(row["offset"]) + spec.low, int(row["offset"]) + spec.high
            yield Access(first + at, low // PAGE, -(-high // PAGE), spec.writes)


def _products(dpu: np.ndarray, first: int, pages: object) -> Iterator[Access]:
    """The operands of matrix products; an accumulating one reads what it writes, which keeps the page in use."""
    assert callable(pages)
    task = first + np.arange(len(dpu))
    m, n, k, batch = (dpu[name].astype(np.int64) for name in ("m", "n", "k", "batch"))
    turned = (dpu["flags"] & DpuFlag.B_KN) != 0
    rows = {"a": m, "b": np.where(turned, k, n), "c": m}
    width = {"a": k, "b": np.where(turned, n, k), "c": n}
    for name, writes in (("a", False), ("b", False), ("c", True)):
        size = (batch - 1) * dpu[f"{name}_batch"] + (rows[name] - 1) * dpu[f"{name}_stride"]
        size = size + width[name] * ITEM_BITS[dpu[f"{name}_type"]] // 8
        yield from pages(task, dpu[f"{name}_base"], dpu[f"{name}_offset"].astype(np.int64), size, writes)
