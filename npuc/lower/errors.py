"""Refusals of lowering: an op no kernel takes, or an entry that cannot be made to fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


class LoweringRefused(Exception):
    """The model cannot be lowered. problems: one line each, all that were found."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = list(problems)


def describe(node: ir.Node) -> str:
    """node, op, and the shapes of its inputs: the `where` of a message."""
    shapes = ", ".join(
        "?" if value is None or value.shape is None else f"[{', '.join(str(n) for n in value.shape)}]"
        for value in node.inputs
    )
    domain = f"{node.domain}." if node.domain else ""
    return f"node {node.name} ({domain}{node.op_type} of {shapes})"
