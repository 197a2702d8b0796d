"""Two streams and a buffer: loads run ahead of the computation as far as the scratchpad has room.

Per operation i in graph order, with bytes b, and B their sum so far:
  in(i)  = max(in(i-1), out of room: done(j) for the last j with B(i) - B(j) > room, less the bytes that fit) + load(i)
  done(i) = max(done(i-1) + compute(i), in(i) + compute(i) / tiles(i))
compute is that of `together`: the engines of one operation wait for each other, or take turns; its loads do not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """One operation. load, compute, store: seconds. nbytes: loaded. tiles: parts that load and compute in turns."""

    load: float
    compute: float
    store: float
    nbytes: int
    tiles: int


def together(matrix: float, vector: float, turns: int) -> float:
    """Seconds of two engines that work on `turns` equal parts in turns: one part of the shorter stands alone, the rest
    is hidden by the longer. One turn: they add up."""
    return max(matrix, vector) + min(matrix, vector) / max(turns, 1)


def makespan(stages: Sequence[Stage], room: int, rate: float) -> float:
    """Seconds until the last result is stored. room: bytes of the buffer; rate: of the port, in bytes a second."""
    loaded = computed = stored = 0.0
    total = 0
    marks: list[tuple[int, float]] = []  # bytes that were needed by then, and when they were free again
    at = 0
    for stage in stages:
        total += stage.nbytes
        loaded += stage.load
        while at < len(marks) and total - marks[at][0] > room:
            loaded = max(loaded, marks[at][1] + (total - marks[at][0] - room) / rate)
            at += 1
        last = stage.compute / max(stage.tiles, 1)
        computed = max(computed + stage.compute, loaded + last if stage.nbytes else 0.0)
        if stage.store:
            begun = max(stored, computed - stage.compute)
            stored = max(begun + stage.store, computed + stage.store / max(stage.tiles, 1))
        marks.append((total, computed))
    return max(loaded, computed, stored)
