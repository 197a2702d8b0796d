"""Placement that spills: where buffers do not fit, gaps are cut out of their lives until they do."""

from __future__ import annotations

import numpy as np

from npuc.schedule.errors import OverflowRefused
from npuc.schedule.limits import Limits, ScheduleOptions
from npuc.schedule.lives import local_lives
from npuc.schedule.place import Placement, place
from npuc.schedule.rewrite import cut_gaps
from npuc.schedule.spill import Spiller
from npuc.tasks.graph import TaskGraph
from npuc.tasks.program import Spills

_ROUNDS = 24
_STEP = 64  # in each round a crowded task is freed of this part of the memory


def relieve_sums(graph: TaskGraph, memory_bytes: dict[str, int], limits: Limits) -> tuple[TaskGraph, Spills]:
    """The graph with gaps cut so that what lives at each task fits in sum, memory by memory; where that cannot be, as
    it was.
    """
    spills = Spills()
    for memory, lives in local_lives(graph, prefetch=0, overlap=0).items():
        size = memory_bytes.get(memory)
        ways = limits.ways.get(memory)
        if size is None or ways is None or lives.load(len(graph.tasks), stretched=False).max() <= size:
            continue
        spiller = Spiller(graph, memory)
        if spiller.relieve(np.full(len(graph.tasks), size, np.int64)):
            graph, added = cut_gaps(graph, spiller.chosen, ways)
            spills += added
    return graph, spills


def place_or_spill(
    graph: TaskGraph, memory_bytes: dict[str, int], limits: Limits, options: ScheduleOptions
) -> tuple[TaskGraph, Placement, Spills]:
    """The placed graph, with transfers added where it fits in sum but not side by side.

    Raises OverflowRefused where nothing is left to spill, PinRefused.
    """
    spills = Spills()
    for _ in range(_ROUNDS):
        try:
            return graph, place(graph, memory_bytes, options.prefetch, options.overlap), spills
        except OverflowRefused as refused:
            relieved = _relieve(graph, refused, limits)
            if relieved is None:
                raise
        graph, spills = relieved[0], spills + relieved[1]
    return graph, place(graph, memory_bytes, options.prefetch, options.overlap), spills


def _relieve(graph: TaskGraph, refused: OverflowRefused, limits: Limits) -> tuple[TaskGraph, Spills] | None:
    """The graph with less in the memory where buffers found no room; None where nothing can leave it."""
    ways = limits.ways.get(refused.memory)
    if ways is None or not refused.crowded:
        return None
    spiller = Spiller(graph, refused.memory)
    ceiling = np.full(len(graph.tasks), refused.available, np.int64)
    for task in refused.crowded:
        ceiling[task] = spiller.load[task] - refused.available // _STEP
    spiller.relieve(ceiling)
    return cut_gaps(graph, spiller.chosen, ways) if spiller.chosen else None
