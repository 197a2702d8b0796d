"""Constants behind moves: a table that one node reads as it is may reach another through Reshape or Transpose."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.infer import Inference
from npuc.graph.interpret import Interpreter

_PASSED = frozenset(
    {
        "Cast",
        "DequantizeLinear",
        "Flatten",
        "Identity",
        "QuantizeLinear",
        "Reshape",
        "Squeeze",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators that are looked through. Others on constants are left to folding, which knows all of them."""


class Known:
    """Finds constants of a normalised graph. Large ones behind a move are computed each time that they are read."""

    def __init__(self, inference: Inference) -> None:
        self._interpreter = Interpreter(inference)

    def tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """The content of an initializer or of moves of one, else None."""
        if value is None or value.is_graph_input():
            return None
        node = value.producer()
        if node is None:
            return value.const_value
        if value in self._interpreter.facts:
            return self._interpreter.facts[value].tensor
        if node.domain != "" or node.op_type not in _PASSED:
            return None
        if any(given is not None and self.tensor(given) is None for given in node.inputs):
            return None
        self._interpreter.run([node])
        return self._interpreter.facts[value].tensor
