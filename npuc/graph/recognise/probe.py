"""Evaluates step-only values for a chosen number of past tokens and new rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.evaluate import OutOfTable
from npuc.graph.infer import Dims, Fact, Inference
from npuc.graph.interpret import Interpreter, input_facts
from npuc.graph.roles import Role, Roles

InputShapes = Callable[[int, int], dict[ir.Value, Dims]]


@dataclass(frozen=True)
class Point:
    """A step: n_past tokens in the cache, rows new ones. hidden: past columns with a zero in the attention mask."""

    n_past: int
    rows: int
    hidden: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        return self.n_past + self.rows


@dataclass(frozen=True)
class Columns:
    """Which slots have a column in a mask: the past tokens and the new ones; of the past only the last `kept`, where
    the caches drop older ones; or all `slots` of caches of a fixed size. circular: of which a slot has the last token
    that is its number modulo the slots."""

    kept: int | None = None
    slots: int | None = None
    circular: bool = False

    def of(self, point: Point) -> np.ndarray:
        """Token of each column; one that is not there yet for a slot that has none."""
        if self.slots is not None:
            slot = np.arange(self.slots)
            turn = (point.total - 1 - slot) // self.slots * self.slots if self.circular else 0
            return np.where(slot < point.total, slot + turn, slot)
        first = 0 if self.kept is None else max(0, point.n_past - self.kept)
        return np.arange(first, point.total)


ALL = Columns()
"""A column for every token."""


_COUNTS: dict[Role | None, Callable[[Point], int]] = {
    Role.COUNT: lambda point: point.n_past,
    Role.TOTAL: lambda point: point.total,
    Role.LAST: lambda point: point.total - 1,
}


@dataclass
class _Probe(Interpreter):
    """Goes on with the shape alone of what runs past the end of a table: its content may not be asked for."""

    failure: OutOfTable | None = None

    def computed(self, node: ir.Node, inputs: list[Fact | None]) -> list[Fact]:
        try:
            return super().computed(node, inputs)
        except OutOfTable as error:
            self.failure = self.failure or error
            return self.inference.infer(node, inputs)


class Prober:
    """Evaluates values of one graph. shapes: (n_past, rows) -> shapes of all graph inputs. fixed_rows: rows a run that
    the graph insists on, or None."""

    def __init__(
        self, graph: ir.Graph, roles: Roles, shapes: InputShapes, inference: Inference, fixed_rows: int | None
    ) -> None:
        self.fixed_rows = fixed_rows
        self._roles = roles
        self._shapes = shapes
        self._inference = inference
        self._order = {node: index for index, node in enumerate(graph)}
        self._ancestors: dict[tuple[ir.Value, ...], list[ir.Node]] = {}

    def evaluate(self, value: ir.Value, point: Point) -> np.ndarray:
        """The content of a step-only value. Raises OutOfTable or EvaluationError as the evaluator does."""
        return self.evaluate_all([value], point)[0]

    def evaluate_all(self, values: Sequence[ir.Value], point: Point) -> list[np.ndarray]:
        """The contents of step-only values; those that equal layers make of the same are one array."""
        facts = input_facts(self._shapes(point.n_past, point.rows))
        for graph_input, fact in list(facts.items()):
            facts[graph_input] = self._with_content(graph_input, fact, point)
        interpreter = _Probe(self._inference, facts)
        interpreter.run(self._nodes_behind(tuple(values)))
        contents: dict[int, np.ndarray] = {}  # by fact: a lazy tensor is computed once for all that share it
        found = []
        for value in values:
            fact = interpreter.fact(value)
            if fact.tensor is None and interpreter.failure is not None:
                raise interpreter.failure
            if fact.tensor is None:
                raise ModelRefused(
                    [
                        f"value {value.name!r} follows from shapes and positions alone, but it cannot be "
                        "evaluated: an operator behind it has no evaluator"
                    ]
                )
            if id(fact) not in contents:
                contents[id(fact)] = fact.tensor.numpy()
            found.append(contents[id(fact)])
        return found

    def _with_content(self, value: ir.Value, fact: Fact, point: Point) -> Fact:
        role = self._roles.inputs.get(value.name or "")
        assert fact.shape is not None
        if role is Role.MASK:
            content = np.ones([d or 1 for d in fact.shape], fact.dtype.numpy())
            content[..., list(point.hidden)] = 0
            content[..., point.total :] = 0
        elif role is Role.POSITIONS:
            positions = np.arange(point.n_past, point.total).astype(fact.dtype.numpy())
            content = np.broadcast_to(positions, [d or 1 for d in fact.shape])
        elif role in _COUNTS:
            content = np.full([d or 1 for d in fact.shape], _COUNTS[role](point), fact.dtype.numpy())
        else:
            return fact
        return Fact(fact.dtype, content.shape, ir.Tensor(content))

    def _nodes_behind(self, values: tuple[ir.Value, ...]) -> Sequence[ir.Node]:
        found = self._ancestors.get(values)
        if found is None:
            seen: set[ir.Node] = set()
            stack = [value.producer() for value in values]
            while stack:
                node = stack.pop()
                if node is not None and node not in seen:
                    seen.add(node)
                    # the numbers of a dequantised weight are known where its node is kept, too
                    stack.extend(v.producer() for v in node.inputs if v is not None and v.const_value is None)
            found = sorted(seen, key=self._order.__getitem__)
            self._ancestors[values] = found
        return found
