"""How queries, keys and values get to attention: chains of moves, followed element by element on index arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import EvaluationError
from npuc.graph.fuse.region import FLOATS, Region, is_float_cast
from npuc.graph.fuse.rule import Scope
from npuc.graph.nodes import DOMAIN, attributes, dims, is_op, label, producer, scalar

_MOVES = ("Reshape", "Transpose", "Expand", "Slice", "Squeeze", "Unsqueeze", "Tile", "Identity", "Gather", "Concat")


@dataclass(frozen=True)
class Cache:
    """Rows of a cache as attention sees them. joined: the Concat of past and new [1, G, N + C, D], or past [1, G, N, D]
    with the new rows written into it."""

    past: ir.Value
    new: ir.Value
    joined: ir.Value


@dataclass(frozen=True)
class Step:
    """One move of a chain, from its data input to its output; factor: what a Mul or Div by a number multiplies with."""

    node: ir.Node
    source: ir.Value
    factor: float = 1.0


def one_step(value: ir.Value) -> Step | None:
    """The move that makes a value, if it is made by one."""
    node = value.producer()
    if node is None or node.domain != "" or not node.inputs or node.inputs[0] is None:
        return None
    first = node.inputs[0]
    if is_op(node, *_MOVES):
        variable = [v for v in node.inputs if v is not None and v.const_value is None]
        return Step(node, first) if variable == [first] else None
    if is_float_cast(node):
        return Step(node, first)
    if is_op(node, "Mul", "Div") and dims(value) == dims(node.outputs[0]):
        for data, number in ((first, node.inputs[1]), (node.inputs[1], first)):
            factor = scalar(number)
            if factor is not None and data is not None and dims(data) == dims(value) and data.dtype in FLOATS:
                if is_op(node, "Mul"):
                    return Step(node, data, factor)
                if number is node.inputs[1] and factor != 0:
                    return Step(node, data, 1 / factor)
    return None


def chain(value: ir.Value) -> list[Step]:
    """The moves that end in a value, the last first, back to something that is computed."""
    steps = []
    step = one_step(value)
    while step is not None:
        steps.append(step)
        step = one_step(step.source)
    return steps


def follow(steps: list[Step], array: np.ndarray) -> np.ndarray:
    """Runs a chain (last move first) on an array of the shape of its source, without the factors."""
    for step in reversed(steps):
        if step.factor != 1.0 or not is_op(step.node, *_MOVES):
            continue
        array = Region((step.node,), (step.source,), step.node.outputs[0]).run([array])
    return array


def product(steps: list[Step]) -> float:
    """The factors of a chain, multiplied."""
    return float(np.prod([step.factor for step in steps]))


def find_cache(value: ir.Value) -> tuple[Cache, list[Step]] | str:
    """The cache that a value is moved from, and the moves from its rows to the value."""
    steps = chain(value)
    for position in range(len(steps) + 1):
        joined = value if position == 0 else steps[position - 1].source
        write = producer(joined, "WriteRows", domain=DOMAIN)
        if write is not None and write.inputs[0] is not None and write.inputs[1] is not None:
            return Cache(write.inputs[0], write.inputs[1], joined), steps[:position]
        concat = producer(joined, "Concat")
        if concat is None or len(concat.inputs) != 2:
            continue
        past, new = concat.inputs
        if past is None or new is None or not past.is_graph_input():
            continue
        if len(dims(joined)) != 4 or attributes(concat)["axis"] % 4 != 2:
            axis = attributes(concat)["axis"]
            return f"{label(concat)} joins a cache along axis {axis} of {list(dims(joined))}, not along its rows"
        return Cache(past, new, joined), steps[:position]
    end = steps[-1].source if steps else value
    made = end.producer()
    return f"{value.name!r} comes from {label(made) if made else repr(end.name)}, not from a cache joined with new rows"


def repeated(cache: Cache, heads: int, transposed: bool) -> np.ndarray:
    """Indices of a cache's elements as attention needs them: [H, T, D] or [H, D, T], group h // (H / G) for head h."""
    shape = dims(cache.joined)
    rows = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)[0]
    spread = np.repeat(rows, heads // shape[1], axis=0)
    return np.swapaxes(spread, 1, 2) if transposed else spread


def check_cache(cache: Cache, steps: list[Step], heads: int, transposed: bool, scope: Scope) -> str | None:
    """Why the moves from a cache do not give [H, T, D] (or [H, D, T]) with groups repeated; None if they do."""
    groups = dims(cache.joined)[1]
    if heads % groups:
        return f"{heads} query heads do not divide into {groups} cache heads"
    result = steps[0].node.outputs[0] if steps else cache.joined
    region = Region(tuple(step.node for step in reversed(steps)), (cache.joined,), result)
    key = ("cache", heads, transposed, region.signature())
    return scope.proofs.once(key, lambda: _misplaced(cache, steps, heads, transposed))


def _misplaced(cache: Cache, steps: list[Step], heads: int, transposed: bool) -> str | None:
    shape, name = dims(cache.joined), cache.joined.name
    try:
        found = follow(steps, np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape))
    except EvaluationError as error:
        return str(error)
    wanted = repeated(cache, heads, transposed)
    if found.ndim >= 2 and found.size == found.shape[-2] * found.shape[-1]:
        found = np.broadcast_to(found.reshape(found.shape[-2:]), (heads, *found.shape[-2:]))  # as the product does
    if found.ndim < 3 or found.shape[-2:] != wanted.shape[-2:] or found.size != wanted.size:
        return f"the rows of {name!r} arrive as {list(found.shape)}, not as {list(wanted.shape)}"
    if not np.array_equal(found.reshape(wanted.shape), wanted):
        return f"the rows of {name!r} arrive in another order than each group for {heads // shape[1]} heads in turn"
    return None


def find_query(value: ir.Value, heads: int, rows: int, size: int, scope: Scope) -> tuple[ir.Value, float]:
    """The earliest value whose elements are the queries [H, C, D] in this order, and the factor from it to `value`."""
    best, factor, steps = value, 1.0, list[Step]()
    count = heads * rows * size
    for step in chain(value):
        steps.append(step)
        if int(np.prod(dims(step.source))) != count:
            break
        region = Region(tuple(s.node for s in reversed(steps)), (step.source,), value)
        if scope.proofs.once(("query", region.signature()), partial(keeps_order, list(steps))):
            best, factor = step.source, product(steps)
    return best, factor


def keeps_order(steps: list[Step]) -> bool:
    """Whether a chain of moves leaves the elements in their order."""
    shape = dims(steps[-1].source)
    elements = np.arange(int(np.prod(shape)), dtype=np.int32)
    return bool(np.array_equal(follow(steps, elements.reshape(shape)).reshape(-1), elements))
