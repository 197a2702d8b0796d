"""Mixtures of experts: which share of npuc.MoE's parameters and products a step needs.

A row chooses k of E experts. The bound takes what no choice can do without: one row's k experts, read once. The
estimate takes the library's two kernels: where R rows choose fewer experts than there are, each row loads its k experts
anew; else every expert runs over all rows. Where it is likely enough that some have no row, those are skipped; then
choices are taken to be independent and equally likely, so that E * (1 - (1 - k / E)^R) experts run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from npuc.graph.nodes import DOMAIN, attributes, dims, is_op

STACKS = (3, 4, 5)
"""Inputs of npuc.MoE that are gate [E, F, K], up [E, F, K] and down [E, N, F]; up is gate where nothing is gated."""
SKIPPED = 0.5
"""Experts without a row, on average, from which on the library skips them."""


@dataclass(frozen=True)
class Choice:
    """One npuc.MoE. chosen: k of `experts`, for each of `rows` rows. layers: (output channels, depth) of an expert's
    matrices: gate, up where there is one, down."""

    experts: int
    chosen: int
    rows: int
    layers: tuple[tuple[int, int], ...]

    @property
    def row_by_row(self) -> bool:
        """Whether the library loads the experts of each row by their numbers."""
        return self.rows * self.chosen < self.experts

    @property
    def needed(self) -> float:
        """Different experts that the rows need, on average."""
        return self.experts * (1.0 - (1.0 - self.chosen / self.experts) ** self.rows)

    @property
    def loaded(self) -> float:
        """Experts that the library loads."""
        if self.row_by_row:
            return float(self.rows * self.chosen)
        return self.needed if self.experts - self.needed >= SKIPPED else float(self.experts)

    @property
    def macs(self) -> int:
        """Multiplications of one expert and one row."""
        return sum(channels * depth for channels, depth in self.layers)

    @property
    def hidden(self) -> int:
        """Width of the hidden layer."""
        return self.layers[0][0]


def choice_of(node: ir.Node) -> Choice | None:
    """None for another operator."""
    if not is_op(node, "MoE", domain=DOMAIN):
        return None
    indices, gate, _, down = (dims(v) for v in (node.inputs[1], *(node.inputs[at] for at in STACKS)) if v is not None)
    layers = [gate[1:]] * (2 if attributes(node).get("gated", 1) else 1)
    return Choice(gate[0], indices[-1], prod(indices[:-1]), (*((f, k) for f, k in layers), (down[1], down[2])))


def stacks_of(node: ir.Node) -> list[ir.Value]:
    """The parameters that are matrices, each once."""
    return list(dict.fromkeys(v for v in (node.inputs[at] for at in STACKS) if v is not None))
