"""Short texts for messages: nodes, types, shapes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx_ir as ir

Dim = int | str | None  # a number, a named dimension, or nothing known


def node_text(node: ir.Node) -> str:
    """node NAME (DOMAIN.OP), or by what it makes where it has no name."""
    op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    if node.name:
        return f"node {node.name} ({op})"
    made = next((v.name for v in node.outputs if v.name), None)
    return f"the node ({op}) that makes {made!r}"


def dtype_text(code: int) -> str:
    """float, int64, ... for a TensorProto element type."""
    names = onnx.TensorProto.DataType
    return names.Name(code).lower() if code in names.values() else f"element type {code}"


def shape_text(dims: Sequence[Dim] | None) -> str:
    """[2, rows, ?]; "an unknown shape" where not even the rank is known."""
    if dims is None:
        return "an unknown shape"
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"


def count_text(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
