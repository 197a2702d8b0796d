"""The bound of npuc.bound, with weights in a chosen format and with the chosen experts alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx_ir as ir

from npuc.bound import PARTS, Bound
from npuc.bound.cuts import cut_seconds, find_cuts
from npuc.bound.launches import launch_chain
from npuc.bound.traffic import Loads, loads_of, seconds_in, seconds_out, shared_seconds
from npuc.bound.work import Costs, NodeWork, node_work
from npuc.estimate.formats import WeightFormat
from npuc.estimate.operations import constant_matrix, matrix_extents
from npuc.estimate.plan import Plan, value_bytes
from npurt.target.model import Target


@dataclass(frozen=True)
class Floor:
    """Bounds of one entry. cuts: places of its narrow nodes, which no machine changes."""

    plan: Plan
    nodes: tuple[ir.Node, ...]
    cuts: tuple[int, ...]

    @classmethod
    def of(cls, plan: Plan, target: Target, form: WeightFormat) -> Floor:
        """target, form: any; they do not matter to the result."""
        nodes = tuple(plan.graph.model.graph)
        costs = Costs.of(target, form.floats)
        return cls(plan, nodes, tuple(find_cuts(nodes, [node_work(node, costs, 0) for node in nodes])))

    def bound(self, target: Target, form: WeightFormat, n_past: int, held: bool) -> Bound:
        """TargetError where the target multiplies no such floats. Without experts and with weights as floats this is
        `npuc.bound.bound_of`."""
        costs = Costs.of(target, form.floats)
        work = [self._work(node, node_work(node, costs, n_past)) for node in self.nodes]
        loads, chain = self._loads(form, n_past), launch_chain(self.nodes, work, costs)
        parts = (
            max(
                seconds_in(target, loads.loaded, held),
                seconds_out(target, loads.stored, held),
                shared_seconds(target, loads.loaded + loads.stored),
            ),
            sum(node.matrix for node in work),
            sum(node.vector for node in work),
            chain.total,
            cut_seconds(self.cuts, work, chain, loads, target, held),
        )
        return Bound(dict(zip(PARTS, parts, strict=True)), loads.loaded, loads.stored, n_past)

    def _work(self, node: ir.Node, work: NodeWork) -> NodeWork:
        share = self.plan.experts.share([node])
        return work if share == 1.0 else replace(work, matrix=work.matrix * share, vector=work.vector * share)

    def _loads(self, form: WeightFormat, n_past: int) -> Loads:
        item = form.floats.nbytes
        loads = loads_of(self.plan.graph, item, n_past)
        found, seen = list(loads.nodes), set[str | None]()
        for at, node in enumerate(self.nodes):
            weights = constant_matrix(node)
            if weights is None or weights.name in seen:
                continue
            seen.add(weights.name)
            choice = self.plan.experts.by_node.get(node)
            count = form.matrix_bytes(*matrix_extents(node))
            found[at] += (count if choice is None else int(count * choice.read)) - value_bytes(weights, item)
        return Loads(tuple(found), loads.stored)
