"""Shapes of values, and contents of what follows from shapes alone, for a probe size of the model's inputs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.evaluate import EvaluationError
from npuc.graph.fuse.region import graph_order
from npuc.graph.infer import Dims, Fact, Inference
from npuc.graph.interpret import Interpreter, input_facts
from npuc.graph.nodes import is_op
from npuc.graph.options import BuildOptions

_FEW = 5


class Sizes:
    """Of one graph at one size of its inputs."""

    def __init__(self, graph: ir.Graph, shapes: Mapping[ir.Value, Dims], inference: Inference) -> None:
        self.order = graph_order(graph)
        self._interpreter = Interpreter(inference, input_facts(shapes))
        self._kinds: dict[ir.Value, str] = {}

    def fact(self, value: ir.Value) -> Fact | None:
        """What inference says of a value; None where it has no answer."""
        try:
            self._interpreter.run(self._missing(value))
            return self._interpreter.fact(value)
        except (ModelRefused, EvaluationError, KeyError):
            return None

    def _missing(self, value: ir.Value) -> list[ir.Node]:
        found: set[ir.Node] = set()
        stack = [value]
        while stack:
            current = stack.pop()
            node = current.producer()
            if node is None or node in found or current in self._interpreter.facts:
                continue
            found.add(node)
            stack.extend(v for v in node.inputs if v is not None)
        return sorted(found, key=self.order.__getitem__)

    def shape(self, value: ir.Value) -> tuple[int, ...] | None:
        """The static shape of a value, None where it is not known."""
        fact = self.fact(value)
        return None if fact is None or not fact.static else tuple(int(d or 0) for d in fact.shape or ())

    def follows_from_sizes(self, value: ir.Value) -> bool:
        """Whether a value depends on the shapes of others, and not on what anything but a constant holds."""
        return self._kind(value) == "size"

    def _kind(self, value: ir.Value) -> str:
        if value not in self._kinds:
            node = value.producer()
            inputs = set() if node is None else {self._kind(v) for v in node.inputs if v is not None}
            if value.const_value is not None:
                self._kinds[value] = "constant"
            elif node is None or ("other" in inputs and not is_op(node, "Shape", "Size")):
                self._kinds[value] = "other"
            else:
                self._kinds[value] = "size" if "size" in inputs or is_op(node, "Shape", "Size") else "constant"
        return self._kinds[value]

    def content(self, value: ir.Value) -> np.ndarray | None:
        """The content of a value that follows from sizes."""
        fact = self.fact(value)
        return None if fact is None or fact.tensor is None else fact.tensor.numpy()


def probe_shapes(graph: ir.Graph, options: BuildOptions) -> dict[ir.Value, Dims]:
    """Extents for a graph that is no language model: its own, those that the user gave, else a few."""
    shapes: dict[ir.Value, Dims] = {}
    for value in graph.inputs:
        extents = [] if value.shape is None else list(value.shape)
        shapes[value] = tuple(
            extent if isinstance(extent, int) else options.dims.get(str(extent.value), _FEW) for extent in extents
        )
    return shapes
