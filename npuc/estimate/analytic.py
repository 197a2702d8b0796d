"""The analytical estimate of one entry: what a compiled program would take, from the graph and the target alone.

It is no bound: tiles, launches and re-read operands count as the library has them. It needs no weights, no lowering and
no schedule, so it stands beside a simulated figure as a second one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuc.bound.traffic import fastest_route
from npuc.estimate.cost import Cost, Coster, Machine
from npuc.estimate.formats import FORMATS, WeightFormat
from npuc.estimate.plan import Plan
from npuc.estimate.streams import Stage, makespan, together
from npuc.graph.entry import EntryGraph
from npurt.abi.dtypes import DType
from npurt.target.model import Target

PARTS = ("ddr", "matrix", "vector", "launches")
"""Loads with their latency; MACs; vector instructions; starts of programs. The last three add up, the loads run beside
them, and so do MACs that the vector engine hides, which do not count."""
READINGS = {"held": True, "overlapped": False}


@dataclass(frozen=True)
class Analytic:
    """One entry on one tile. seconds: of a run; parts: seconds by `PARTS`. n_past: valid rows of the caches. names,
    costs: of each operation in order."""

    entry: str
    n_past: int
    seconds: float
    parts: Mapping[str, float]
    names: tuple[str, ...]
    costs: tuple[Cost, ...]

    @property
    def loaded(self) -> int:
        return sum(cost.loaded for cost in self.costs)

    @property
    def stored(self) -> int:
        return sum(cost.stored for cost in self.costs)

    @property
    def macs(self) -> int:
        return sum(cost.macs for cost in self.costs)

    @property
    def limited_by(self) -> str:
        """The part that decides."""
        return deciding(self.parts)


def deciding(parts: Mapping[str, float]) -> str:
    """Of `PARTS`: the loads, or the largest of the others where these add up to more."""
    computed = [name for name in PARTS if name != "ddr"]
    if parts["ddr"] >= sum(parts[name] for name in computed):
        return "ddr"
    return max(computed, key=lambda name: parts[name])


def analytic(
    entry: EntryGraph, target: Target, precision: str | DType = "f16", *, n_past: int | None = None, held: bool = True
) -> Analytic:
    """precision: a name of `FORMATS`, or the type of floats. n_past: None for full caches. held: a port stands still
    for the latency of a transfer. TargetError where the target multiplies no such floats."""
    form = FORMATS[precision.label if isinstance(precision, DType) else precision]
    past = entry.capacity if n_past is None else min(n_past, entry.capacity)
    return run(Plan(entry), target, form, past, held)


def analytic_record(entry: EntryGraph, target: Target, precision: str | DType = "f16") -> dict[str, Any]:
    """For a program's metadata: microseconds and parts in both readings of the latency, at full caches."""
    runs = {name: analytic(entry, target, precision, held=held) for name, held in READINGS.items()}
    first = next(iter(runs.values()))
    return {
        "n_past": first.n_past,
        "ddr_bytes": first.loaded + first.stored,
        "us": {name: round(run.seconds * 1e6, 3) for name, run in runs.items()},
        "parts_us": {name: {p: round(s * 1e6, 3) for p, s in run.parts.items()} for name, run in runs.items()},
    }


def run(plan: Plan, target: Target, form: WeightFormat, n_past: int, held: bool) -> Analytic:
    """One run of a prepared entry. n_past: valid rows of the caches."""
    machine = Machine.of(target, form, n_past)
    priced = _priced(plan, machine, held)
    route = fastest_route(target, loads=True)
    once = 0.0 if held else route.latency
    parts = dict.fromkeys(PARTS, 0.0)
    for cost, stage, launches in priced:
        parts["ddr"] += stage.load
        parts["matrix"] += stage.compute - cost.vector - launches
        parts["vector"] += cost.vector
        parts["launches"] += launches
    parts["ddr"] += once
    seconds = makespan([stage for _, stage, _ in priced], machine.room, route.rate) + once
    return Analytic(plan.graph.label, n_past, seconds, parts, plan.names, tuple(cost for cost, _, _ in priced))


def _priced(plan: Plan, machine: Machine, held: bool) -> list[tuple[Cost, Stage, float]]:
    """Of each operation the cost, its times and the part of them that launches take; equal ones are priced once."""
    route, back = (fastest_route(machine.target, loads=loads) for loads in (True, False))
    latency, waits = (route.latency, back.latency) if held else (0.0, 0.0)
    live = plan.live_bytes(machine.costs.item, machine.room // 2)
    known: dict[tuple[int, int], tuple[Cost, Stage, float]] = {}
    found = []
    for operation, kind, fresh, count in zip(plan.operations, plan.kinds, plan.fresh, live, strict=True):
        free = max(machine.room - count, machine.room // 2)  # what is too much goes through device memory
        if (kind, free) not in known:
            cost = Coster(machine, free, fresh).cost(operation)
            load = cost.loaded / route.rate + cost.loads * latency
            launches = _launches(cost, machine.target)
            compute = together(cost.matrix, cost.vector + launches, cost.turns)
            stage = Stage(load, compute, _store(cost, back.rate, waits), cost.loaded, cost.tiles)
            known[kind, free] = cost, stage, launches
        found.append(known[kind, free])
    return found


def _launches(cost: Cost, target: Target) -> float:
    matrix, vector, sync = target.engine_of("matrix"), target.engine_of("vector"), target.sync
    start = cost.runs * (vector.launch + sync.issue + sync.latency)
    return start + (cost.tiles * (matrix.launch + sync.issue) + sync.latency if cost.macs else 0.0)


def _store(cost: Cost, rate: float, latency: float) -> float:
    return cost.stored / rate + latency if cost.stored else 0.0
