"""The shape of a fusion rule, and the driver that applies rules to a graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import onnx_ir as ir

from npuc.graph.fuse.region import graph_order
from npuc.graph.nodes import label

T = TypeVar("T")


@dataclass
class Proofs:
    """Outcomes of proofs by the signature of what was proven: equal layers are proven once."""

    _known: dict[Hashable, object] = field(default_factory=dict)

    def once(self, key: Hashable, prove: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = prove()
        return self._known[key]  # type: ignore[return-value]


@dataclass
class Scope:
    """What a rule sees of the graph it works on. order: of the nodes when the rule started; rows: of a run; capacity:
    slots of the past."""

    graph: ir.Graph
    rows: int
    proofs: Proofs
    n_past: ir.Value | None = None
    capacity: int = 0
    order: dict[ir.Node, int] = field(default_factory=dict)


class Rewrite(Protocol):
    """A proven place: calling it rewrites the graph."""

    def __call__(self) -> None: ...


class Rule(Protocol):
    """pattern, check and rewrite in one: `match` looks at an anchor and gives None (not this rule's business), a reason
    (it looks like it, but cannot be proven), or the rewrite."""

    @property
    def name(self) -> str: ...

    @property
    def anchors(self) -> tuple[str, ...]: ...

    def match(self, node: ir.Node, scope: Scope) -> Rewrite | str | None: ...


@dataclass(frozen=True)
class Refusal:
    """Why a rule did not take a place that looked like its own."""

    rule: str
    node: str
    reason: str


def apply_rules(rules: Sequence[Rule], scope: Scope) -> tuple[dict[str, int], list[Refusal]]:
    """Applies each rule once over the graph, in order: how often each fired, and the refusals."""
    fired: dict[str, int] = {}
    refusals: list[Refusal] = []
    for rule in rules:
        scope.order = graph_order(scope.graph)
        for node in _anchors(scope.graph, rule.anchors):
            if node.graph is None or not any(o.uses() or o.is_graph_output() for o in node.outputs):
                continue
            match = rule.match(node, scope)
            if isinstance(match, str):
                refusals.append(Refusal(rule.name, label(node), match))
            elif match is not None:
                match()
                fired[rule.name] = fired.get(rule.name, 0) + 1
    return fired, refusals


def _anchors(graph: ir.Graph, op_types: Iterable[str]) -> list[ir.Node]:
    wanted = frozenset(op_types)
    return [node for node in graph if node.op_type in wanted]
