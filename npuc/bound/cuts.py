"""The narrow places of a graph: nodes that need all that comes before them, and that all the rest needs.

Before such a node the loads of what precedes it must have ended, and after it the rest must still be computed; only as
much of the rest as fits on chip can have been loaded. With several narrow places, the computations between neighbours
add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from npuc.bound.launches import Chain, edges_of
from npuc.bound.traffic import Loads, buffer_bytes, seconds_in
from npuc.bound.work import NodeWork
from npurt.target.model import Target


def cut_seconds(
    cuts: Sequence[int], work: Sequence[NodeWork], chain: Chain, loads: Loads, target: Target, held: bool
) -> float:
    """The largest, over the narrow places, of before + after; 0 where there is none. cuts: from `find_cuts`."""
    if not cuts:
        return 0.0
    edges = [0, *(cut + 1 for cut in cuts), len(work)]
    marks = [0.0, *(chain.upto[cut] for cut in cuts), chain.total]
    segments = []
    for at in range(len(edges) - 1):
        inside = work[edges[at] : edges[at + 1]]
        matrix, vector = sum(node.matrix for node in inside), sum(node.vector for node in inside)
        segments.append(max(matrix, vector, marks[at + 1] - marks[at]))
    room = buffer_bytes(target)
    best = before = 0.0
    for at, cut in enumerate(cuts):
        loaded = sum(loads.nodes[: cut + 1])
        # the last load before a cut is not one of the largest: its latency is not counted
        before = max(seconds_in(target, loaded, False), before + segments[at])
        later = max(0, loads.loaded - loaded - room)
        after = max(sum(segments[at + 1 :]), seconds_in(target, later, held) if later else 0.0)
        best = max(best, before + after)
    return best


def find_cuts(nodes: Sequence[ir.Node], work: Sequence[NodeWork]) -> list[int]:
    """Places, in topological order, of the gates that every other node with work precedes or follows."""
    return narrow_places(edges_of(nodes), work)


def narrow_places(edges: Sequence[Sequence[int]], work: Sequence[NodeWork]) -> list[int]:
    """The same. edges: from `npuc.bound.launches.edges_of`."""
    ancestors: list[int] = []  # of each node, a set of places as bits
    for producers in edges:
        seen = 0
        for at in producers:
            seen |= ancestors[at] | 1 << at
        ancestors.append(seen)
    working = [at for at, cost in enumerate(work) if cost.engine]
    found, earlier = [], 0
    common = _common_ancestors(ancestors, working)
    for at in working:
        if work[at].gate and ancestors[at] & earlier == earlier and common[at] >> at & 1:
            found.append(at)
        earlier |= 1 << at
    return found


def _common_ancestors(ancestors: Sequence[int], working: Sequence[int]) -> dict[int, int]:
    """For each working node, what all working nodes behind it have as ancestors (all, for the last one)."""
    shared, found = -1, {}
    for at in reversed(working):
        found[at] = shared
        shared &= ancestors[at]
    return found
