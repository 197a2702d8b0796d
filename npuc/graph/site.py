"""One node that a rule of normalisation rewrites, with what the rule needs at hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.facts import Types
from npuc.frontend.text import node_text
from npuc.graph.edit import Names, describe_as, redirect
from npuc.graph.nodes import SOURCE, sources


class Site:
    """A node, its graph, and the model's facts. version: operator set of ai.onnx that the file was written in."""

    def __init__(self, node: ir.Node, version: int, types: Types, names: Names, problems: Problems) -> None:
        assert isinstance(node.graph, ir.Graph)
        self.node = node
        self.graph = node.graph
        self.version = version
        self._types = types
        self._names = names
        self._problems = problems

    def dtype(self, value: ir.Value | None) -> int | None:
        """TensorProto element type of a value, None if not known."""
        if value is None:
            return None
        return self._types.dtype(value) or (int(value.dtype) if value.dtype is not None else None)

    def rank(self, value: ir.Value | None) -> int | None:
        dims = self._types.dims(value) if value is not None else None
        return len(dims) if dims is not None else None

    def input(self, index: int) -> ir.Value | None:
        """An input, None where it is left out."""
        return self.node.inputs[index] if index < len(self.node.inputs) else None

    def attribute(self, name: str, default: Any) -> Any:
        return self.node.attributes[name].value if name in self.node.attributes else default

    def refuse(self, why: str) -> None:
        self._problems.add(why, node_text(self.node))

    def constant(self, array: np.ndarray, part: str) -> ir.Value:
        """A new initializer named after the node and the part that it plays in it."""
        name = self._names.value(f"{self.node.name}.{part}")
        tensor = ir.Tensor(array, name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: dict[str, Any] | None = None,
        domain: str = "",
    ) -> ir.Value:
        """A new node in front of this one. Returns its only output."""
        name = self._names.node(f"{self.node.name}.{op_type}")
        node = ir.node(op_type, inputs, attributes or {}, domain=domain, name=name)
        node.metadata_props[SOURCE] = sources([self.node])
        node.outputs[0].name = self._names.value(f"{name}.out")
        self.graph.insert_before(self.node, node)
        return node.outputs[0]

    def replace(self, *values: ir.Value | None) -> None:
        """Lets the readers of each output read one of these values instead (None: no reader), and removes the node."""
        for old, new in zip(self.node.outputs, values, strict=False):
            if new is not None:
                describe_as(new, old)
                redirect(self.graph, old, new, self._names)
        self.graph.remove(self.node, safe=True)

    def set_inputs(self, *values: ir.Value | None) -> None:
        self.node.resize_inputs(len(values))
        for i, value in enumerate(values):
            self.node.replace_input_with(i, value)

    def set_attribute(self, name: str, value: Any) -> None:
        """Sets an attribute; None removes it."""
        if value is None:
            self.node.attributes.pop(name, None)
        else:
            self.node.attributes[name] = ir.convenience.convert_attribute(name, value)
