"""The bytes that must cross to and from device memory once, whatever the tiles."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

import onnx_ir as ir

from npuc.graph.entry import EntryGraph
from npuc.graph.nodes import SHAPE_OPERANDS, attributes, dims
from npuc.graph.quantised.packed import packed_node, stored_bytes
from npurt.target.model import Route, Target

STEP_INPUTS = ("n_past", "n_new")
ROW_TABLES = {"Gather": 0, "StepRows": 0}
"""Operators of which only the chosen rows of an operand cross."""
STACKS = (3, 4, 5)
"""Operands of MoE that are the matrices of all experts, of which a row needs those that it chooses; the next ones are
biases, which may be nothing."""
CACHES = (3, 4)
"""Operands of Attention that are the past of a cache."""
_BYTES = {ir.DataType.BOOL: 1, ir.DataType.INT8: 1, ir.DataType.UINT8: 1}
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class Loads:
    """Bytes of each node that were not loaded for an earlier one, in graph order; and what leaves in the end."""

    nodes: tuple[int, ...]
    stored: int

    @property
    def loaded(self) -> int:
        return sum(self.nodes)


@dataclass(frozen=True)
class Cache:
    """The past that a node reads. row_bytes: of one row of all groups; most: rows that it sees at most."""

    node: int
    row_bytes: int
    most: int

    def bytes_at(self, n_past: int) -> int:
        return self.row_bytes * min(n_past, self.most)


def caches_of(entry: EntryGraph, item: int) -> tuple[Cache, ...]:
    """The caches, each where it is first read. item: bytes of a float in device memory."""
    seen: set[str | None] = set()
    found = []
    for place, node in enumerate(entry.model.graph):
        for at, value in enumerate(node.inputs):
            if value is None or not _is_cache(node, at) or value.name in seen or not _comes_from_memory(value):
                continue
            seen.add(value.name)
            found.append(_cache(place, node, value, item))
    return tuple(found)


def loads_of(entry: EntryGraph, item: int, n_past: int) -> Loads:
    """item: bytes of a float in device memory. n_past: valid rows of the caches."""
    seen: set[str | None] = set(STEP_INPUTS)
    found = []
    for node in entry.model.graph:
        total = 0
        if packed_node(node.outputs[0]) is not None:  # counted where it is read
            found.append(0)
            continue
        skipped = SHAPE_OPERANDS.get(node.op_type, ()) if not node.domain else ()
        for at, value in enumerate(node.inputs):
            if value is None or at in skipped or value.name in seen or not _comes_from_memory(value):
                continue
            packed = packed_node(value)
            if packed is not None:
                codes = packed.inputs[0]
                total += _packed_bytes(node, at, packed, codes is not None and codes.name in seen)
                seen.update([codes.name] if codes is not None and ROW_TABLES.get(node.op_type) != at else [])
                continue
            if ROW_TABLES.get(node.op_type) == at:
                total += min(_bytes(node.outputs[0], item), _bytes(value, item))
                continue
            seen.add(value.name)
            if node.op_type == "MoE" and at >= STACKS[0]:
                total += _bytes(value, item) * _chosen(node) // dims(value)[0] if at in STACKS else 0
                continue
            total += _cache_bytes(node, value, item, n_past) if _is_cache(node, at) else _bytes(value, item)
        found.append(total)
    return Loads(tuple(found), sum(_bytes(value, item) for value in entry.model.graph.outputs))


def seconds_in(target: Target, count: float, held: bool) -> float:
    """Time of one port for loads: bytes at the full rate, and a latency for each largest double-buffered load."""
    return _seconds(target, fastest_route(target, loads=True), count, held)


def seconds_out(target: Target, count: float, held: bool) -> float:
    """The same for stores."""
    return _seconds(target, fastest_route(target, loads=False), count, held)


def shared_seconds(target: Target, count: float) -> float:
    """Time of what loads and stores share; 0 where they share nothing."""
    name = fastest_route(target, loads=True).pool
    return count / target.pools[name].rate if name else 0.0


def buffer_bytes(target: Target) -> int:
    """The on-chip memory that loads go to."""
    return target.memories[fastest_route(target, loads=True).destination].bytes


def _seconds(target: Target, route: Route, count: float, held: bool) -> float:
    if not count:
        return 0.0
    inside = target.memories[route.destination if route.source == "ddr" else route.source].bytes
    largest = min(inside // 2, target.engines[route.engine].max_bytes or inside)
    times = ceil(count / largest) if held else 1
    return count / route.rate + times * route.latency


def fastest_route(target: Target, *, loads: bool) -> Route:
    """The way between device memory and a scratchpad that has the highest rate."""
    on_chip = target.on_chip
    routes = [
        route
        for (source, sink), route in target.routes.items()
        if (source, sink)[not loads] == "ddr" and (source, sink)[loads] in on_chip
    ]
    return max(routes, key=lambda route: (route.rate, -route.latency))


def _packed_bytes(node: ir.Node, at: int, packed: ir.Node, again: bool) -> int:
    """Of a weight that stays codes what a reader loads: all of it once, or the rows of a table that it picks."""
    stored = stored_bytes(packed)
    if ROW_TABLES.get(node.op_type) != at:
        return 0 if again else stored
    shape = dims(packed.outputs[0])
    return min(stored, stored // max(shape[0], 1) * (prod(dims(node.outputs[0])) // max(shape[1], 1)))


def _chosen(node: ir.Node) -> int:
    """Experts that one row chooses; others may choose the same."""
    indices = node.inputs[1]
    assert indices is not None
    return dims(indices)[-1]


def _comes_from_memory(value: ir.Value) -> bool:
    return value.const_value is not None or value.is_graph_input()


def _is_cache(node: ir.Node, at: int) -> bool:
    return node.op_type == "Attention" and at in CACHES


def _cache_bytes(node: ir.Node, value: ir.Value, item: int, n_past: int) -> int:
    """Of a cache [1, G, N, D] only the rows that some row of the step sees."""
    return _cache(0, node, value, item).bytes_at(n_past)


def _cache(place: int, node: ir.Node, value: ir.Value, item: int) -> Cache:
    window = int(attributes(node).get("window", 0))
    _, groups, rows, depth = dims(value)
    return Cache(place, groups * depth * item, min(rows, window - 1 if window else rows))


def _bytes(value: ir.Value, item: int) -> int:
    assert value.dtype is not None, value.name
    return prod(dims(value)) * (item if value.dtype in _FLOATS else _BYTES.get(value.dtype, 4))
