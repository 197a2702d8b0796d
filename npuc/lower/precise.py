"""Values that are float32 whatever the precision: what decides which experts a row has.

A router's scores differ by little, and a wrong expert is no small error. So the norm before a router, its logits, the
TopK and the weights that follow keep float32, and so do the router's own weights.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

_NORMS = {("npuc", "RMSNorm"), ("", "LayerNormalization")}
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def precise_values(nodes: Iterable[ir.Node]) -> frozenset[ir.Value]:
    """Float values from the norm before each router up to the numbers and weights of npuc.MoE."""
    found: set[ir.Value] = set()
    for node in nodes:
        if (node.domain, node.op_type) == ("npuc", "MoE"):
            _collect(node.inputs[1:3], found)
    return frozenset(found)


def _collect(ends: Iterable[ir.Value | None], found: set[ir.Value]) -> None:
    seen: set[ir.Value] = set()
    stack = [(value, False) for value in ends if value is not None]
    while stack:
        value, behind = stack.pop()
        node = value.producer()
        if node is None or value in seen:
            continue
        seen.add(value)
        found.update(output for output in node.outputs if output.dtype in _FLOATS)
        if (node.domain, node.op_type) in _NORMS or (behind and node.op_type not in ("Reshape", "Cast", "Transpose")):
            continue  # the norm's input, or what a router reads where no norm comes before it, has the usual type
        product = node.op_type in ("MatMul", "Gemm")
        inputs = node.inputs[:1] if product or behind else node.inputs
        stack += [(v, behind or product) for v in inputs if v is not None and v.const_value is None]
