"""The bound: the largest of what the memory, each engine, the chain of launches and the narrow places cost at least.

Every part holds for any tile sizes, order and placement on this target. Ratios to it cannot be improved by smaller
tiles, as ratios to a program's own sums can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuc.bound.cuts import cut_seconds, find_cuts
from npuc.bound.launches import Chain, launch_chain
from npuc.bound.traffic import Loads, loads_of, seconds_in, seconds_out, shared_seconds
from npuc.bound.work import Costs, NodeWork, node_work
from npuc.graph.entry import EntryGraph
from npurt.abi.dtypes import DType
from npurt.target.model import Target

PARTS = ("ddr", "matrix", "vector", "launches", "cut")
"""Bytes that cross DDR once; MACs; vector work; the chain of engine changes; before, through and after a node that
everything waits for."""


@dataclass(frozen=True)
class Bound:
    """parts: seconds by `PARTS`. loaded, stored: bytes. n_past: valid rows of the caches."""

    parts: Mapping[str, float]
    loaded: int
    stored: int
    n_past: int

    @property
    def seconds(self) -> float:
        return max(self.parts.values())


@dataclass(frozen=True)
class _Facts:
    """What the graph asks for, at one state of the caches."""

    work: list[NodeWork]
    loads: Loads
    chain: Chain
    cuts: list[int]
    n_past: int


def bound_of(
    entry: EntryGraph, target: Target, *, floats: DType, n_past: int | None = None, held: bool = True
) -> Bound:
    """floats: how floats are stored. n_past: None for full caches. held: a port stands still for a latency.

    Errors: TargetError where the target multiplies no such floats.
    """
    return _bound(_facts(entry, target, floats, entry.capacity if n_past is None else n_past), target, held)


def bound_record(entry: EntryGraph, target: Target, floats: DType) -> dict[str, Any]:
    """The JSON object for a blob's metadata: microseconds of each part in both readings of the DMA latency, and the
    bytes, at full caches."""
    facts = _facts(entry, target, floats, entry.capacity)
    readings = {"held": _bound(facts, target, True), "overlapped": _bound(facts, target, False)}
    return {
        "n_past": facts.n_past,
        "ddr_bytes": facts.loads.loaded + facts.loads.stored,
        "parts_us": {
            name: {part: round(seconds * 1e6, 3) for part, seconds in bound.parts.items()}
            for name, bound in readings.items()
        },
    }


def _facts(entry: EntryGraph, target: Target, floats: DType, n_past: int) -> _Facts:
    nodes = list(entry.model.graph)
    costs = Costs.of(target, floats)
    work = [node_work(node, costs, n_past) for node in nodes]
    loads = loads_of(entry, floats.nbytes, n_past)
    return _Facts(work, loads, launch_chain(nodes, work, costs), find_cuts(nodes, work), n_past)


def _bound(facts: _Facts, target: Target, held: bool) -> Bound:
    loads = facts.loads
    parts = {
        "ddr": max(
            seconds_in(target, loads.loaded, held),
            seconds_out(target, loads.stored, held),
            shared_seconds(target, loads.loaded + loads.stored),
        ),
        "matrix": sum(node.matrix for node in facts.work),
        "vector": sum(node.vector for node in facts.work),
        "launches": facts.chain.total,
        "cut": cut_seconds(facts.cuts, facts.work, facts.chain, loads, target, held),
    }
    return Bound(parts, loads.loaded, loads.stored, facts.n_past)
