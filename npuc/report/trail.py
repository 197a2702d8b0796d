"""Follows the nodes of a model through the steps of the graph level: which are left after each, and in which nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from npuc.frontend import LoadedModel
from npuc.graph.branches import flatten
from npuc.graph.cleanup import name_nodes
from npuc.graph.edit import cloned
from npuc.graph.nodes import SOURCE
from npuc.graph.steps import Build


@dataclass(frozen=True)
class Given:
    """A node as the model has it. Functions and branches with a constant condition are inlined first."""

    name: str
    domain: str
    op_type: str


def stands_for(node: ir.Node) -> list[str]:
    """Names of the model's nodes behind a node: its own, where it is one of them."""
    return [name for name in node.metadata_props.get(SOURCE, node.name or "").split(";") if name]


@dataclass
class Trail:
    """The steps at which nodes were lost.

    given: the model's nodes in order. lost: by entry and name, the step after which no node stands for it; "" is the
    entry of steps on the whole model. heirs: by entry and name, the nodes that were left and read what a lost one made.
    """

    given: list[Given]
    lost: dict[str, dict[str, str]] = field(default_factory=dict)
    heirs: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    _readers: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, loaded: LoadedModel) -> Trail:
        """The start: the model as read, which stays as it is."""
        model = cloned(loaded.model)
        flatten(model)
        name_nodes(model)
        return cls([Given(node.name or "", node.domain, node.op_type) for node in model.graph])

    def watch(self, step: str, build: Build) -> None:
        """To be called after each step."""
        graphs = [("", build.model.graph)] if not build.drafts else [(d.label, d.graph) for d in build.drafts]
        for label, graph in graphs:
            alive = {name for node in graph.all_nodes() for name in stands_for(node)}
            lost, readers = self.lost.setdefault(label, {}), self._readers.get(label, {})
            for node in self.given:
                if node.name in alive:
                    lost.pop(node.name, None)
                elif node.name not in lost:
                    lost[node.name] = step
                    self.heirs.setdefault(label, {})[node.name] = _first_alive(node.name, readers, alive)
            self._readers[label] = _readers(graph)

    def step_of(self, entry: str, name: str) -> str | None:
        """The step at which an entry lost a node; None where a node of the entry stands for it."""
        return self.lost.get("", {}).get(name) or self.lost.get(entry, {}).get(name)


def _readers(graph: ir.Graph) -> dict[str, list[str]]:
    """By name of a node of the model, those that read what the nodes that stand for it make."""
    found: dict[str, list[str]] = {}
    for name, node in standing(graph):
        uses = [use.node for output in node.outputs for use in output.uses()]
        found.setdefault(name, []).extend(reader for user in uses for reader in stands_for(user)[:1])
    return found


def _first_alive(name: str, readers: Mapping[str, list[str]], alive: set[str]) -> list[str]:
    """The nearest nodes behind a lost one that are left."""
    seen, queue, found = {name}, list(readers.get(name, ())), dict[str, None]()
    while queue:
        current = queue.pop(0)
        if current in seen:
            continue
        seen.add(current)
        if current in alive:
            found.setdefault(current)
        else:
            queue += readers.get(current, ())
    return list(found)


def standing(graph: ir.Graph) -> Iterator[tuple[str, ir.Node]]:
    """(name of a node of the model, a node that stands for it), in the order of the graph."""
    for node in graph:
        for name in stands_for(node):
            yield name, node
