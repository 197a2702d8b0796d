"""Runs a graph on facts: what can be computed is computed, for the rest types and shapes are inferred."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.evaluate import EvaluationError, can_evaluate, evaluate
from npuc.graph.infer import SMALL, Fact, Inference, known_fact
from npuc.graph.nodes import DOMAIN, attributes, is_op, label

LAZY_ELEMENTS = 1 << 16
"""Results with more elements are computed when somebody asks for their content."""

Facts = MutableMapping[ir.Value, Fact]


@dataclass
class Interpreter:
    """Facts of values, node by node. `inference` is shared by all interpreters of a build.

    Equal facts are one object, and what an operator makes of the same facts is made once: equal layers share it.
    """

    inference: Inference
    facts: Facts = field(default_factory=dict)
    _equal: dict[Hashable, Fact] = field(default_factory=dict)
    _made: dict[tuple[int, ...], list[Fact]] = field(default_factory=dict)

    def fact(self, value: ir.Value) -> Fact:
        """The fact of a value that has been given, computed, or is an initializer."""
        found = self.facts.get(value)
        if found is None:
            tensor = value.const_value
            if tensor is None:
                raise KeyError(value.name)
            found = self._one(Fact(tensor.dtype, tuple(int(d) for d in tensor.shape.numpy()), tensor))
            self.facts[value] = found
        return found

    def run(self, nodes: Iterable[ir.Node]) -> None:
        """Adds the facts of all outputs of these nodes, which come in topological order."""
        for node in nodes:
            for output, fact in zip(node.outputs, self.step(node), strict=True):
                self.facts[output] = fact

    def step(self, node: ir.Node) -> list[Fact]:
        """Facts of one node's outputs. ModelRefused names the node if its inputs do not fit."""
        inputs = [None if value is None else self.fact(value) for value in node.inputs]
        key = (self.inference.signature(node), *map(id, inputs))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = [self._one(fact) for fact in self._step(node, inputs)]
        return made

    def _one(self, fact: Fact) -> Fact:
        """The one fact that stands for all equal ones; of large contents each is its own."""
        if fact.tensor is None:
            return self._equal.setdefault((fact.dtype, fact.shape), fact)
        if fact.size > SMALL:
            return fact
        return self._equal.setdefault((fact.dtype, fact.shape, fact.tensor.numpy().tobytes()), fact)

    def _step(self, node: ir.Node, inputs: list[Fact | None]) -> list[Fact]:
        if node.domain == "" and node.op_type in ("Shape", "Size") and inputs[0] is not None:
            extents = _extents(node, inputs[0])
            if extents is not None:
                return [known_fact(extents)]
        if is_op(node, "Choose", domain=DOMAIN):
            return [_chosen(inputs)]
        if can_evaluate(node.domain, node.op_type) and all(f is None or f.tensor is not None for f in inputs):
            return self.computed(node, inputs)
        return self.inference.infer(node, inputs)

    def computed(self, node: ir.Node, inputs: list[Fact | None]) -> list[Fact]:
        """Facts of a node all of whose inputs are known. Raises OutOfTable and EvaluationError as the evaluator."""
        if any(f is not None and f.size > LAZY_ELEMENTS for f in inputs):
            inferred = self.inference.infer(node, inputs)
            if len(inferred) == 1 and inferred[0].static and inferred[0].size > LAZY_ELEMENTS:
                return [_lazy(node, inputs, inferred[0])]
        return [known_fact(array) for array in compute(node, inputs)]


def _chosen(inputs: list[Fact | None]) -> Fact:
    """What Choose(condition, then, else) gives: one of the two, or what both have in common."""
    condition, then, other = inputs
    assert condition is not None and then is not None and other is not None
    if condition.tensor is not None:
        return then if bool(condition.tensor.numpy().reshape(())) else other
    if then.shape is None or other.shape is None or len(then.shape) != len(other.shape):
        return Fact(then.dtype, None)
    return Fact(then.dtype, tuple(a if a == b else None for a, b in zip(then.shape, other.shape, strict=True)))


def _extents(node: ir.Node, fact: Fact) -> np.ndarray | None:
    """What Shape or Size gives, if the extents it asks for are known."""
    if node.op_type == "Size":
        return np.array(fact.size, np.int64) if fact.static else None
    if fact.shape is None:
        return None
    attrs = attributes(node)
    extents = list(fact.shape[attrs.get("start", 0) : attrs.get("end")])
    return None if None in extents else np.array(extents, np.int64)


def compute(node: ir.Node, inputs: list[Fact | None]) -> tuple[np.ndarray, ...]:
    """The outputs of a node whose inputs are all known."""
    arrays = [None if f is None or f.tensor is None else f.tensor.numpy() for f in inputs]
    try:
        return evaluate(node.domain, node.op_type, arrays, attributes(node))
    except EvaluationError as error:
        error.args = (f"{label(node)}: {error}",)
        raise


def _lazy(node: ir.Node, inputs: list[Fact | None], fact: Fact) -> Fact:
    assert fact.shape is not None
    tensor = ir.LazyTensor(
        lambda: ir.Tensor(compute(node, inputs)[0]),
        dtype=fact.dtype,
        shape=ir.Shape(fact.shape),
        cache=False,
        name=node.outputs[0].name,
    )
    return Fact(fact.dtype, fact.shape, tensor)


def input_facts(shapes: Mapping[ir.Value, tuple[int | None, ...]]) -> dict[ir.Value, Fact]:
    """Facts of graph inputs with these shapes. ModelRefused names an input without a type."""
    facts = {}
    for value, shape in shapes.items():
        if value.dtype is None:
            raise ModelRefused([f"graph input {value.name!r} has no element type"])
        facts[value] = Fact(value.dtype, shape)
    return facts
