"""Placement that spills: where buffers do not fit, gaps are cut out of their lives until they do."""

from __future__ import annotations

import numpy as np

from npuc.schedule.errors import OverflowRefused
from npuc.schedule.limits import Limits, ScheduleOptions
from npuc.schedule.place import Placement, place
from npuc.schedule.rewrite import cut_gaps
from npuc.schedule.spill import Spiller
from npuc.tasks.graph import TaskGraph
from npuc.tasks.program import Spills

_ROUNDS = 24  # one for the sums, the others for what fits in sum but not side by side
_STEP = 64  # a crowded task is freed of this part of the memory each time


def place_or_spill(
    graph: TaskGraph, memory_bytes: dict[str, int], limits: Limits, options: ScheduleOptions
) -> tuple[TaskGraph, Placement, Spills]:
    """The placed graph, with transfers added where it did not fit as it was.

    Raises OverflowRefused for the graph as given where nothing is left to spill, PinRefused.
    """
    spills = Spills()
    first: OverflowRefused | None = None
    for _ in range(_ROUNDS):
        try:
            return graph, place(graph, memory_bytes, options.prefetch, options.overlap), spills
        except OverflowRefused as refused:
            first = first or refused
            relieved = _relieve(graph, refused, limits)
        if relieved is None:
            break
        graph, spills = relieved[0], spills + relieved[1]
    assert first is not None, "the loop ends by a placement or a refusal"
    raise first


def _relieve(graph: TaskGraph, refused: OverflowRefused, limits: Limits) -> tuple[TaskGraph, Spills] | None:
    """The graph with less in the memory where it was too much; None where nothing can leave it."""
    ways = limits.ways.get(refused.memory)
    if ways is None:
        return None
    spiller = Spiller(graph, refused.memory)
    ceiling = np.full(len(graph.tasks), refused.available, np.int64)
    for task in refused.crowded:
        ceiling[task] = spiller.load[task] - refused.available // _STEP
    held = spiller.relieve(ceiling)
    if not spiller.chosen or not (held or refused.crowded):
        return None
    return cut_gaps(graph, spiller.chosen, ways)
