"""What writes out one operator of a plain graph where every shape is static."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import evaluate
from npuc.graph.nodes import Builder, dims


@dataclass(frozen=True)
class Form:
    """A node that is being written out. attrs: its attributes; shape, dtype: of its first input."""

    builder: Builder
    node: ir.Node
    attrs: Mapping[str, Any]

    @property
    def x(self) -> ir.Value:
        return self.input(0)

    @property
    def shape(self) -> tuple[int, ...]:
        return dims(self.x)

    def input(self, index: int) -> ir.Value:
        value = self.node.inputs[index]
        assert value is not None
        return value

    def op(self, op_type: str, *inputs: ir.Value, dtype: ir.DataType | None = None, shape: Sequence[int] | None = None,
           **attrs: Any) -> ir.Value:  # fmt: skip
        """A node, elementwise unless a shape is given; of constants alone, what it gives."""
        if all(value.const_value is not None for value in inputs):
            arrays = [value.const_value.numpy() for value in inputs if value.const_value is not None]
            return self.constant(evaluate("", op_type, arrays, attrs)[0])
        extents = np.broadcast_shapes(*(dims(value) for value in inputs)) if shape is None else shape
        return self.builder.op(op_type, list(inputs), extents, dtype or inputs[0].dtype or ir.DataType.FLOAT, attrs)

    def constant(self, array: np.ndarray) -> ir.Value:
        return self.builder.constant(array, f"{self.node.name}~constant")

    def number(self, number: float) -> ir.Value:
        """A scalar of the type of the first input."""
        return self.constant(np.array(number).astype((self.x.dtype or ir.DataType.FLOAT).numpy()))

    def whole(self, numbers: Sequence[int]) -> ir.Value:
        return self.constant(np.array(list(numbers), np.int64))

    def reduced(self, op_type: str, value: ir.Value, axes: Sequence[int]) -> ir.Value:
        """A reduction that keeps its axes."""
        shape = [1 if axis in axes else extent for axis, extent in enumerate(dims(value))]
        return self.op(op_type, value, self.whole(axes), shape=shape, keepdims=1)

    def of_channels(self, value: ir.Value) -> ir.Value:
        """One number a channel, in a shape that broadcasts against x [N, C, ..]."""
        shape = [1, *dims(value), *[1] * (len(self.shape) - 2)]
        if value.const_value is not None:
            return self.constant(value.const_value.numpy().reshape(shape))
        return self.builder.reshape(value, shape)
