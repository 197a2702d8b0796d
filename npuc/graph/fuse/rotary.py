"""Rotary embedding, whatever it is written as: half split by Slice or Split, interleaved by Reshape, partial.

The rule finds the smallest piece of graph round the products with two position tables that depends on one more value,
and compares it with the definition on random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import EvaluationError
from npuc.graph.fuse.region import FLOATS, Region, forward_candidates, is_float_cast, nearest_source
from npuc.graph.fuse.rule import Rewrite, Scope
from npuc.graph.nodes import DOMAIN, Builder, constant, dims, is_op, producer, replace_value
from npuc.graph.recognise.apply import TABLE

_MOVES = frozenset(
    {
        "Mul",
        "Add",
        "Sub",
        "Neg",
        "Concat",
        "Slice",
        "Split",
        "Reshape",
        "Transpose",
        "Gather",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Cast",
    }
)
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class _Layout:
    """How a table of R/2 angles lies in the model's table: angles for a width, the angles of a table, and back."""

    angles: Callable[[int], int]
    narrow: Callable[[np.ndarray], np.ndarray]
    widen: Callable[[np.ndarray], np.ndarray]

    def fits(self, table: np.ndarray) -> bool:
        """Whether the model's table has this layout."""
        back = self.widen(self.narrow(table))
        return back.shape == table.shape and bool(np.array_equal(back, table))


_LAYOUTS = (
    _Layout(lambda w: w // 2, lambda t: t[:, : t.shape[1] // 2], lambda t: np.concatenate([t, t], -1)),
    _Layout(lambda w: w // 2, lambda t: t[:, 0::2], lambda t: np.repeat(t, 2, -1)),
    _Layout(lambda w: w // 2, lambda t: t[:, t.shape[1] // 2 :], lambda t: np.concatenate([-t, t], -1)),
    _Layout(lambda w: w, lambda t: t, lambda t: t),
)


@dataclass(frozen=True)
class _Match:
    """heads_first: the source is [1, H, C, D], else [1, C, H, D]. cos, sin: the sources of the tables."""

    heads_first: bool
    interleaved: bool
    cos: int
    sin: int
    layouts: tuple[int, int]
    rotary_dim: int


class RotaryRule:
    """Products with two position tables and the moves round them become npuc.Rotary."""

    name = "rotary"
    anchors = ("Mul",)

    def match(self, node: ir.Node, scope: Scope) -> Rewrite | str | None:
        if not any(_behind_table(value) for value in node.inputs):
            return None
        best: tuple[Region, _Match] | None = None
        for result in forward_candidates(node.outputs[0], _through):
            region = nearest_source(
                result,
                _through,
                lambda nodes: node in nodes and _products(nodes) >= 2,
                scope.order,
                leaf=_is_table,
                behind=_behind_table,
            )
            if isinstance(region, str) or len(dims(region.sources[0])) != 4 or len(region.sources) != 3:
                continue
            choices = tuple(_layouts_once(v, scope) for v in region.sources[1:])
            key = (self.name, region.signature(), choices)
            match = scope.proofs.once(key, lambda region=region, choices=choices: _prove(region, scope.rows, choices))  # type: ignore[misc]
            if match is not None:
                best = (region, match)
        if best is None:
            return "its product with a position table is no rotary embedding of one value [1, heads, rows, size]"
        return lambda: _rewrite(scope, *best)


def _through(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type in _MOVES and (not is_op(node, "Cast") or is_float_cast(node))


def _is_table(value: ir.Value) -> bool:
    return producer(value, "StepRows", domain=DOMAIN) is not None and len(dims(value)) == 2


def _behind_table(value: ir.Value | None) -> bool:
    """Whether a value is a position table of floats, perhaps moved."""
    while value is not None and not _is_table(value):
        node = producer(value, "Reshape", "Unsqueeze", "Squeeze", "Expand", "Slice", "Transpose", "Cast")
        value = node.inputs[0] if node is not None else None
    return value is not None and value.dtype in FLOATS


def _products(nodes: set[ir.Node]) -> int:
    return sum(is_op(node, "Mul") for node in nodes)


def _table(value: ir.Value) -> np.ndarray:
    node = producer(value, "StepRows", domain=DOMAIN)
    assert node is not None
    table = constant(node.inputs[0])
    assert table is not None
    return table


def _held(value: ir.Value) -> ir.TensorProtocol:
    """The table behind StepRows, as the tensor that all layers share."""
    node = producer(value, "StepRows", domain=DOMAIN)
    assert node is not None and node.inputs[0] is not None and node.inputs[0].const_value is not None
    return node.inputs[0].const_value


def _layouts_once(value: ir.Value, scope: Scope) -> tuple[int, ...]:
    """The layouts that a table fits; a table may be long, and every layer reads it."""
    table = _held(value)
    return scope.proofs.once(("layouts", table), lambda: _layouts(_table(value)))


def _layouts(table: np.ndarray) -> tuple[int, ...]:
    return tuple(i for i, layout in enumerate(_LAYOUTS) if layout.fits(table))


def _prove(region: Region, rows: int, choices: Sequence[tuple[int, ...]]) -> _Match | None:
    shape = dims(region.sources[0])
    if sorted(dims(region.result)) != sorted(shape):
        return None
    random = np.random.default_rng(0)
    x = random.normal(size=shape)
    widths = [dims(v)[1] for v in region.sources[1:]]
    for first in choices[0]:
        for second in choices[1]:
            layouts = (_LAYOUTS[first], _LAYOUTS[second])
            half = layouts[0].angles(widths[0])
            if half != layouts[1].angles(widths[1]) or 2 * half > shape[-1]:
                continue
            angles = [random.normal(size=(rows, half)) for _ in range(2)]
            try:
                found = region.run([x, *(lay.widen(a) for lay, a in zip(layouts, angles, strict=True))])
            except (EvaluationError, ValueError):
                continue
            for candidate in _candidates(shape, rows, (first, second), 2 * half):
                expected = _rotate(x, angles[candidate.cos], angles[candidate.sin], candidate)
                if found.shape == expected.shape and np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
                    return candidate
    return None


def _candidates(shape: tuple[int, ...], rows: int, layouts: tuple[int, int], rotary_dim: int) -> Iterator[_Match]:
    for heads_first in (True, False):
        if shape[2 if heads_first else 1] == rows:
            for interleaved in (False, True):
                for cos, sin in ((0, 1), (1, 0)):
                    yield _Match(heads_first, interleaved, cos, sin, layouts, rotary_dim)


def _rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, match: _Match) -> np.ndarray:
    """The definition (functions.py), on the source's own layout."""
    size = match.rotary_dim
    turned, rest = x[..., :size], x[..., size:]
    if not match.heads_first:
        cos, sin = cos[:, None, :], sin[:, None, :]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if match.interleaved else np.split(turned, 2, -1)
    first, second = a * cos - b * sin, b * cos + a * sin
    if match.interleaved:
        joined = np.stack([first, second], -1).reshape(turned.shape)
    else:
        joined = np.concatenate([first, second], -1)
    return np.concatenate([joined, rest], -1)


def _rewrite(scope: Scope, region: Region, match: _Match) -> None:
    last, source = region.result.producer(), region.sources[0]
    assert last is not None and source.dtype is not None and scope.n_past is not None
    builder = Builder(scope.graph, last, region.nodes)
    tables = []
    for role in (match.cos, match.sin):
        leaf = region.sources[1 + role]
        layout = match.layouts[role]
        angles = scope.proofs.once(("narrow", _held(leaf), layout), lambda: _narrow(leaf, layout))  # noqa: B023
        assert leaf.dtype is not None
        held = builder.constant(angles, TABLE)
        tables.append(
            builder.op(
                "StepRows",
                [held, scope.n_past],
                (scope.rows, angles.shape[1]),
                leaf.dtype,
                {"rows": scope.rows},
                DOMAIN,
            )
        )
    x = source if match.heads_first else builder.transpose(source, (0, 2, 1, 3))
    attrs = {"interleaved": int(match.interleaved), "rotary_dim": match.rotary_dim}
    new = builder.op("Rotary", [x, *tables], dims(x), source.dtype, attrs, DOMAIN)
    replace_value(region.result, new if match.heads_first else builder.transpose(new, (0, 2, 1, 3)))


def _narrow(leaf: ir.Value, layout: int) -> np.ndarray:
    return np.ascontiguousarray(_LAYOUTS[layout].narrow(_table(leaf)))
