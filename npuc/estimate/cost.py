"""What each operation costs one tile or core: bytes in and out, seconds of the matrix and the vector engine, runs.

Sizes of tiles follow the library's rules in outline: weights stream through a third of what is free on chip, a value
larger than half of the scratchpad goes through device memory, attention takes as many heads and rows as fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, prod

import onnx_ir as ir

from npuc.bound.traffic import CACHES, buffer_bytes
from npuc.bound.work import Costs
from npuc.estimate.attention import Attention, Heads
from npuc.estimate.experts import STACKS, choice_of
from npuc.estimate.formats import WeightFormat
from npuc.estimate.instructions import experts_seconds, vector_seconds
from npuc.estimate.operations import Operation, matrix_extents, product_extents
from npuc.estimate.plan import value_bytes
from npuc.estimate.tiles import Product, blocks_of
from npuc.graph.nodes import dims
from npuc.graph.quantised.packed import packed_node, stored_bytes
from npuc.graph.state_pairs import NEXT_PREFIX
from npurt.target.model import Target

STREAMED = 3
"""Tiles of weights that fit beside each other: one loads, one computes, one is left for results."""
SUMS = 4
"""Bytes of a score or a sum in f32."""


@dataclass(frozen=True)
class Cost:
    """One operation. weights, cache, other: bytes loaded; stored: bytes; loads: transfers in. macs: multiplications of
    the formula. matrix, vector: seconds of the engines. runs: of vector programs. tiles: parts whose loads and
    computations overlap. turns: parts in which the matrix engine works while the vector engine does."""

    weights: int = 0
    cache: int = 0
    other: int = 0
    stored: int = 0
    loads: int = 0
    macs: int = 0
    matrix: float = 0.0
    vector: float = 0.0
    runs: int = 0
    tiles: int = 1
    turns: int = 1

    @property
    def loaded(self) -> int:
        return self.weights + self.cache + self.other


@dataclass(frozen=True)
class Machine:
    """One tile of a target. room: bytes of the scratchpad that loads go to. n_past: valid rows of the caches."""

    target: Target
    costs: Costs
    format: WeightFormat
    room: int
    n_past: int

    @classmethod
    def of(cls, target: Target, form: WeightFormat, n_past: int) -> Machine:
        """TargetError where the target multiplies no such floats."""
        return cls(target, Costs.of(target, form.floats), form, buffer_bytes(target), n_past)

    def bytes(self, value: ir.Value) -> int:
        """Of a value, or of a constant that is no weight matrix."""
        return value_bytes(value, self.costs.item)

    def spilled(self, value: ir.Value) -> bool:
        """Whether a value that an operation makes goes through device memory."""
        return value.producer() is not None and self.bytes(value) > self.room // 2

    def far(self, value: ir.Value) -> bool:
        """Whether a value has to be loaded."""
        return value.const_value is not None or value.is_graph_input() or self.spilled(value)


@dataclass(frozen=True)
class Coster:
    """Prices one operation. free: bytes on chip that no live value takes. fresh: constants and inputs that no earlier
    operation of the entry has loaded."""

    machine: Machine
    free: int
    fresh: frozenset[ir.Value]

    def cost(self, operation: Operation) -> Cost:
        match operation.kind:
            case "product" | "pair":
                return self._products(operation)
            case "attention":
                return self._attention(operation)
            case "experts":
                return self._experts(operation)
            case "gather":
                return self._gather(operation)
            case _:
                return self._vector(operation)

    def _products(self, operation: Operation) -> Cost:
        machine, form = self.machine, self.machine.format
        first = operation.products[0]
        x, w = _given(first.inputs[0]), _given(first.inputs[1])
        constant = w.const_value is not None
        bits = form.bits if constant else 8 * machine.costs.item
        shape = dims(w)
        m, k, n = product_extents(first)
        count, copies = len(operation.products), prod(shape[:-2])
        if not constant:
            count, copies = 1, prod(dims(first.outputs[0])[:-2])
        blocks = blocks_of(Product(m, k, n, count, machine.costs.item, bits, machine.far(x)), self.free // STREAMED)
        weights = sum(self._weights(node) * blocks.w_loads for node in operation.products)
        other = machine.bytes(x) * blocks.x_loads if machine.far(x) else 0
        if not constant and machine.far(w):
            other += machine.bytes(w) * blocks.w_loads
        rest = [v for v in operation.inputs() if v is not x and all(v is not p.inputs[1] for p in operation.products)]
        more, loads = self._crossing(rest)
        macs = sum(prod(dims(node.outputs[0])) * k for node in operation.products)
        matrix = machine.costs.macs(m, macs)
        operands = (m * k * blocks.columns + m * n * blocks.steps) * machine.costs.item * copies + weights
        rate = machine.costs.matrix.operand_rate
        tiles = blocks.rows * blocks.columns * blocks.steps * copies
        vector = vector_seconds(operation, machine.target.engine_of("vector"), machine.costs.item)
        runs = blocks.rows * blocks.columns if operation.kind == "pair" else 0
        return Cost(
            weights, 0, other + more, self._stored(operation), blocks.transfers * copies + loads,
            int(macs), max(matrix, operands / rate if rate else 0.0), vector,
            runs, tiles, max(runs, 1),
        )  # fmt: skip

    def _weights(self, node: ir.Node) -> int:
        value = _given(node.inputs[1])
        if value.const_value is None or value not in self.fresh:
            return 0
        packed = packed_node(value)
        if packed is not None:
            return stored_bytes(packed)
        return self.machine.format.matrix_bytes(*matrix_extents(node))

    def _experts(self, operation: Operation) -> Cost:
        """One kernel: rows one by one with their experts, or each expert over all rows; biases are not counted."""
        machine = self.machine
        choice = choice_of(operation.last)
        assert choice is not None
        layers = [machine.format.matrix_bytes(*layer) for layer in choice.layers]
        other, loads = self._crossing(v for v in operation.last.inputs[: STACKS[0]] if v is not None)
        many = choice.chosen if choice.row_by_row else 1  # experts of one transfer
        tile = self.free // STREAMED
        tiles = ceil(choice.loaded / many) * sum(ceil(many * layer / tile) for layer in layers)
        rows = 1 if choice.row_by_row else choice.rows
        pairs = choice.loaded * rows  # products of one expert and one row
        matrix = machine.costs.macs(rows, pairs * choice.macs)
        vector = experts_seconds(choice, pairs, machine.target.engine_of("vector"), machine.costs.item)
        return Cost(int(choice.loaded * sum(layers)), 0, other, self._stored(operation), loads + tiles,
                    choice.rows * choice.chosen * choice.macs, matrix, vector, ceil(choice.loaded / many) + 1,
                    tiles)  # fmt: skip

    def _attention(self, operation: Operation) -> Cost:
        machine, node = self.machine, operation.last
        heads = Heads.of(node, machine.format.floats)
        free = self.free + machine.bytes(node.outputs[0])  # the result takes the place of the queries
        work = Attention(heads, machine.costs, machine.target).best(free, machine.n_past)
        caches = [v for at, v in enumerate(node.inputs) if at in CACHES and v is not None and v.is_graph_input()]
        other, loads = self._crossing(v for v in operation.inputs() if v not in caches)
        past = min(machine.n_past, heads.past)
        seen = heads.heads * sum(min(past + i + 1, heads.window or past + heads.rows) for i in range(heads.rows))
        return Cost(
            0, work.cache if caches else 0, other, self._stored(operation), loads + (work.loads if caches else 0),
            seen * (heads.depth + heads.width), work.matrix, work.vector, work.runs, work.parts, work.turns,
        )  # fmt: skip

    def _gather(self, operation: Operation) -> Cost:
        node = operation.last
        table = _given(node.inputs[0])
        rows = min(self.machine.bytes(node.outputs[0]), self.machine.bytes(table)) if self.machine.far(table) else 0
        more, loads = self._crossing(operation.inputs()[1:])
        return Cost(other=rows + more, stored=self._stored(operation), loads=loads + (rows > 0))

    def _vector(self, operation: Operation) -> Cost:
        machine = self.machine
        other, loads = self._crossing(operation.inputs())
        if operation.kind == "move":
            return Cost(other=other, loads=loads, stored=self._stored(operation))
        seconds = vector_seconds(operation, machine.target.engine_of("vector"), machine.costs.item)
        values = [v for v in (*operation.inputs(), *operation.outputs()) if v.const_value is None]
        runs = _runs(sum(map(machine.bytes, values)), machine.room)
        return Cost(other=other, stored=self._stored(operation), loads=loads,
                    vector=seconds, runs=runs)  # fmt: skip

    def _crossing(self, values: Iterable[ir.Value]) -> tuple[int, int]:
        """Bytes and transfers of operands that are loaded whole; constants and inputs once in an entry."""
        total = loads = 0
        for value in values:
            if value not in self.fresh and not self.machine.spilled(value):
                continue
            if value.const_value is not None and prod(dims(value)) == 1:
                continue  # a part of the instruction
            count = self.machine.bytes(value)
            total, loads = total + count, loads + ceil(count / (self.machine.room // STREAMED))
        return total, loads

    def _stored(self, operation: Operation) -> int:
        """Results of the entry, as f32 but for new rows of states, and what goes through device memory."""
        machine, total = self.machine, 0
        for value in operation.outputs():
            if value.is_graph_output() and not (value.name or "").startswith(NEXT_PREFIX):
                total += prod(dims(value)) * SUMS
            elif value.is_graph_output() or machine.spilled(value):
                total += machine.bytes(value)
        return total


def _runs(nbytes: float, room: int) -> int:
    """Programs of a function of whole rows: halves until one fits."""
    runs = 1
    while nbytes / runs > room:
        runs *= 2
    return runs


def _given(value: ir.Value | None) -> ir.Value:
    assert value is not None
    return value
