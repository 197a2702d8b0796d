"""The bound of npuc.bound, with weights in a chosen format."""

from __future__ import annotations

from collections.abc import Sequence

from npuc.bound import PARTS, Bound
from npuc.bound.cuts import cut_seconds, find_cuts
from npuc.bound.launches import Chain, launch_chain
from npuc.bound.traffic import Loads, loads_of, seconds_in, seconds_out, shared_seconds
from npuc.bound.work import Costs, NodeWork, node_work
from npuc.estimate.formats import WeightFormat
from npuc.estimate.operations import constant_matrix, matrix_extents
from npuc.estimate.plan import Plan, value_bytes
from npuc.graph.nodes import is_op
from npuc.graph.quantised.packed import packed_node
from npurt.target.model import Target


class Floor:
    """Bounds of one entry. What one step has in common with another is computed once: narrow places for all, work and
    launches for a machine, loads for a step."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.nodes = tuple(plan.graph.model.graph)
        self._growing = [at for at, node in enumerate(self.nodes) if is_op(node, "Attention", domain="npuc")]
        self._cuts: list[int] | None = None
        self._machines: dict[tuple[str, str], tuple[Costs, tuple[NodeWork, ...], Chain]] = {}
        self._steps: dict[tuple[str, int], Loads] = {}

    def bound(self, target: Target, form: WeightFormat, n_past: int, held: bool) -> Bound:
        """TargetError where the target multiplies no such floats. With weights as floats this is
        `npuc.bound.bound_of`."""
        costs, fixed, chain = self._machine(target, form)
        work = list(fixed)
        for at in self._growing:
            work[at] = node_work(self.nodes[at], costs, n_past)
        loads = self._loads(form, n_past)
        parts = (
            max(
                seconds_in(target, loads.loaded, held),
                seconds_out(target, loads.stored, held),
                shared_seconds(target, loads.loaded + loads.stored),
            ),
            sum(node.matrix for node in work),
            sum(node.vector for node in work),
            chain.total,
            cut_seconds(self._narrow(work), work, chain, loads, target, held),
        )
        return Bound(dict(zip(PARTS, parts, strict=True)), loads.loaded, loads.stored, n_past)

    def _machine(self, target: Target, form: WeightFormat) -> tuple[Costs, tuple[NodeWork, ...], Chain]:
        key = target.digest, form.name
        if key not in self._machines:
            costs = Costs.of(target, form.floats)
            work = tuple(node_work(node, costs, 0) for node in self.nodes)
            self._machines[key] = costs, work, launch_chain(self.nodes, work, costs)
        return self._machines[key]

    def _narrow(self, work: Sequence[NodeWork]) -> list[int]:
        if self._cuts is None:
            self._cuts = find_cuts(self.nodes, work)
        return self._cuts

    def _loads(self, form: WeightFormat, n_past: int) -> Loads:
        key = form.name, n_past
        if key not in self._steps:
            self._steps[key] = self._step_loads(form, n_past)
        return self._steps[key]

    def _step_loads(self, form: WeightFormat, n_past: int) -> Loads:
        item = form.floats.nbytes
        loads = loads_of(self.plan.graph, item, n_past)
        found, seen = list(loads.nodes), set[str | None]()
        if not form.quantised:
            return loads
        for at, node in enumerate(self.nodes):
            choice = self.plan.experts.get(node)
            if choice is not None:
                codes = sum(form.matrix_bytes(*layer) for layer in choice.layers)
                found[at] += (codes - choice.macs * item) * choice.chosen
            weights = constant_matrix(node)
            if weights is None or weights.name in seen or packed_node(weights) is not None:
                continue
            seen.add(weights.name)
            found[at] += form.matrix_bytes(*matrix_extents(node)) - value_bytes(weights, item)
        return Loads(tuple(found), loads.stored)
