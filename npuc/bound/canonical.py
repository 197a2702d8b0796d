"""What a graph asks of any machine: multiplications, instructions, bytes, and which node needs which.

It has no unit of time in it, and fits into a program's metadata; so the bound of a compiled program can be computed for
any state of the caches, any target and either reading of the latency, without the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from npuc.bound.cuts import cut_seconds, narrow_places
from npuc.bound.launches import chain_of, edges_of
from npuc.bound.traffic import Cache, Loads, caches_of, loads_of, seconds_in, seconds_out, shared_seconds
from npuc.bound.work import Costs, Demand, demand_of
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
class Canonical:
    """One entry. By node in graph order: demands; edges, the nodes that it needs; loads, bytes that no node before it
    loads, without those of caches. caches: by node. stored: bytes that leave in the end. floats: how they are stored.
    """

    demands: tuple[Demand, ...]
    edges: tuple[tuple[int, ...], ...]
    loads: tuple[int, ...]
    caches: tuple[Cache, ...]
    stored: int
    floats: DType
    capacity: int

    @classmethod
    def of(cls, entry: EntryGraph, floats: DType) -> Canonical:
        nodes: list[ir.Node] = list(entry.model.graph)
        loads = loads_of(entry, floats.nbytes, 0)
        return cls(
            tuple(map(demand_of, nodes)), edges_of(nodes), loads.nodes, caches_of(entry, floats.nbytes), loads.stored,
            floats, entry.capacity,
        )  # fmt: skip

    def loads_at(self, n_past: int) -> Loads:
        found = list(self.loads)
        for cache in self.caches:
            found[cache.node] += cache.bytes_at(n_past)
        return Loads(tuple(found), self.stored)

    def bound(self, target: Target, *, n_past: int | None = None, held: bool = True) -> Bound:
        """n_past: None for full caches. held: a port stands still for a latency.

        Errors: TargetError where the target multiplies no such floats.
        """
        past = self.capacity if n_past is None else n_past
        costs = Costs.of(target, self.floats)
        work = [demand.work(costs, past) for demand in self.demands]
        loads, chain = self.loads_at(past), chain_of(self.edges, work, costs)
        parts = {
            "ddr": max(
                seconds_in(target, loads.loaded, held),
                seconds_out(target, loads.stored, held),
                shared_seconds(target, loads.loaded + loads.stored),
            ),
            "matrix": sum(node.matrix for node in work),
            "vector": sum(node.vector for node in work),
            "launches": chain.total,
            "cut": cut_seconds(narrow_places(self.edges, work), work, chain, loads, target, held),
        }
        return Bound(parts, loads.loaded, loads.stored, past)

    def to_json(self) -> dict[str, Any]:
        """kinds: what equal nodes have in common; nodes: [kind, distances to the nodes that it needs]."""
        caches: dict[int, list[list[int]]] = {}
        for cache in self.caches:
            caches.setdefault(cache.node, []).append([cache.row_bytes, cache.most])
        kinds: list[dict[str, Any]] = []
        nodes: list[list[Any]] = []
        for at, (demand, loads) in enumerate(zip(self.demands, self.loads, strict=True)):
            kind = demand.to_json() | {"loads": loads, "caches": caches.get(at, [])}
            kind = {name: value for name, value in kind.items() if value}
            if kind not in kinds:
                kinds.append(kind)
            nodes.append([kinds.index(kind), [at - producer for producer in self.edges[at]]])
        return {
            "floats": self.floats.label, "capacity": self.capacity, "stored": self.stored, "kinds": kinds,
            "nodes": nodes,
        }  # fmt: skip

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Canonical:
        kinds: Sequence[Mapping[str, Any]] = [row["kinds"][kind] for kind, _ in row["nodes"]]
        caches = [Cache(at, *cache) for at, kind in enumerate(kinds) for cache in kind.get("caches", [])]
        return cls(
            tuple(map(Demand.from_json, kinds)),
            tuple(tuple(at - back for back in backs) for at, (_, backs) in enumerate(row["nodes"])),
            tuple(kind.get("loads", 0) for kind in kinds), tuple(caches), row["stored"],
            DType[row["floats"].upper()], row["capacity"],
        )  # fmt: skip
