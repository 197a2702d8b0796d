"""Mixtures of experts: what one step must read and compute of a graph that writes all experts out.

The rule: a MatMul whose second operand is a constant [E, K, N] belongs to E experts where a TopK of the same graph
chooses k of E scores. Then R rows choose k experts each. Assumed: a row's choices are independent of the others' and
equally likely, so that R rows need E * (1 - (1 - k / E)^R) different experts; each is read once and multiplies
R * k / that many rows. One row needs exactly k. Elementwise work between such products is a share k / E of what the
graph says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import onnx_ir as ir

from npuc.graph.nodes import constant, dims


@dataclass(frozen=True)
class Choice:
    """k of E experts for each of `rows` rows."""

    experts: int
    chosen: int
    rows: int

    @property
    def needed(self) -> float:
        """Different experts that the rows need, on average."""
        return self.experts * (1.0 - (1.0 - self.chosen / self.experts) ** self.rows)

    @property
    def read(self) -> float:
        """Share of all experts' weights that crosses."""
        return self.needed / self.experts

    @property
    def computed(self) -> float:
        """Share of the written-out work that is done."""
        return self.chosen / self.experts

    @property
    def group(self) -> int:
        """Rows that one expert multiplies at once."""
        return ceil(self.rows * self.chosen / self.needed)


class Experts:
    """The experts of one entry."""

    def __init__(self, nodes: Sequence[ir.Node]) -> None:
        choices = {found.experts: found for found in map(_choice, nodes) if found is not None}
        self.by_node: dict[ir.Node, Choice] = {}
        self._values: dict[ir.Value, Choice] = {}
        for node in nodes:
            choice = choices.get(_experts(node))
            if choice is None:
                inherited = [self._values[v] for v in node.inputs if v is not None and v in self._values]
                choice = next((c for c in inherited if _leading(node.outputs[0]) == c.experts), None)
            else:
                self.by_node[node] = choice
            if choice is not None:
                self._values.update(dict.fromkeys(node.outputs, choice))

    def __bool__(self) -> bool:
        return bool(self.by_node)

    def share(self, nodes: Sequence[ir.Node]) -> float:
        """The share of elementwise work that is done: 1.0 outside experts."""
        choice = self._values.get(nodes[-1].outputs[0])
        return 1.0 if choice is None else choice.computed


def _choice(node: ir.Node) -> Choice | None:
    if node.op_type != "TopK" or node.inputs[0] is None:
        return None
    shape, k = dims(node.inputs[0]), constant(node.inputs[1])
    chosen = 0 if k is None else int(k.reshape(-1)[0])
    return Choice(shape[-1], chosen, prod(shape[:-1])) if 0 < chosen < shape[-1] else None


def _experts(node: ir.Node) -> int:
    """E of a product with experts' weights, else 0."""
    weights = node.inputs[1] if node.op_type == "MatMul" and len(node.inputs) > 1 else None
    if weights is None or weights.const_value is None or len(dims(weights)) != 3:
        return 0
    return dims(weights)[0]


def _leading(value: ir.Value) -> int:
    shape = dims(value)
    return shape[0] if len(shape) > 1 else 0
