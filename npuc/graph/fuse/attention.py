"""The common half of all attention rules: from a site that a pattern has found to npuc.Attention, with every proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from npuc.graph.fuse.mask import Visibility
from npuc.graph.fuse.paths import Cache, check_cache, find_cache, find_query, product
from npuc.graph.fuse.rule import Rewrite, Scope
from npuc.graph.nodes import DOMAIN, Builder, dims, replace_value


@dataclass(frozen=True)
class AttentionSite:
    """Attention as written: softmax(softcap(scale * query x key) masked) x value.

    query: [.., C, D], all leading axes together the heads. key: [.., D, T]. value: [.., T, Dv]. result: [.., C, Dv].
    slopes: of the position bias per head, sinks: score of a further column per head; empty for none. nodes: those that
    the rewrite replaces, for provenance.
    """

    query: ir.Value
    key: ir.Value
    value: ir.Value
    result: ir.Value
    heads: int
    scale: float
    softcap: float
    visibility: Visibility
    nodes: tuple[ir.Node, ...]
    slopes: tuple[float, ...] = ()
    sinks: tuple[float, ...] = ()


def rewrite_attention(site: AttentionSite, scope: Scope) -> Rewrite | str:
    """The rewrite of a site, or the reason why it cannot be said as npuc.Attention."""
    if not site.visibility.causal and scope.rows > 1:
        return "new rows see the rows after them: only causal attention is supported"
    rows, size = dims(site.query)[-2:]
    if rows != scope.rows:
        return f"queries have {rows} rows, the run has {scope.rows}: heads and rows are mixed"
    for numbers, what in ((site.slopes, "slopes of a position bias"), (site.sinks, "sinks")):
        if len(numbers) not in (0, site.heads):
            return f"{len(numbers)} {what} do not match {site.heads} heads"
    found = []
    for value, transposed, what in ((site.key, True, "keys"), (site.value, False, "values")):
        cache = find_cache(value)
        if isinstance(cache, str):
            return f"{what}: {cache}"
        reason = check_cache(*cache, site.heads, transposed, scope)
        if reason is not None:
            return f"{what}: {reason}"
        found.append(cache)
    (keys, key_steps), (values, value_steps) = found
    reason = _dropped_rows(keys, site.visibility, scope)
    if reason is not None:
        return reason
    if product(value_steps) != 1.0:
        return f"values are scaled by {product(value_steps)} on their way"
    query, factor = find_query(site.query, site.heads, rows, size, scope)
    scale = site.scale * factor * product(key_steps)
    return lambda: _build(site, scope, query, keys, values, scale)


def _dropped_rows(keys: Cache, visibility: Visibility, scope: Scope) -> str | None:
    """Why the cache that the model keeps is not the one that npuc keeps; None where a row sees the same of both.

    A model may drop all but the last rows of its cache. npuc keeps all `capacity` of them, and its window must hide
    what the model has dropped: the first of the new rows sees window - 1 past ones.
    """
    kept = dims(keys.past)[2]
    if kept >= scope.capacity or (visibility.window and visibility.window - 1 <= kept):
        return None
    return f"the model keeps {kept} rows of its cache, but its mask hides none of those before: no window that fits"


def _build(site: AttentionSite, scope: Scope, query: ir.Value, keys: Cache, values: Cache, scale: float) -> None:
    last = site.result.producer()
    assert last is not None and query.dtype is not None and site.result.dtype is not None
    builder = Builder(scope.graph, last, site.nodes)
    rows, size = dims(site.query)[-2:]
    q = builder.reshape(query, (1, site.heads, rows, size))
    attrs: dict[str, Any] = {"scale": scale, "softcap": site.softcap, "window": site.visibility.window}
    attrs |= {name: list(numbers) for name, numbers in (("slopes", site.slopes), ("sinks", site.sinks)) if numbers}
    shape = (1, site.heads, rows, dims(values.joined)[-1])
    inputs = [q, keys.new, values.new, keys.past, values.past, scope.n_past]
    new = builder.op("Attention", inputs, shape, query.dtype, attrs, DOMAIN)
    if new.dtype != site.result.dtype:
        new = builder.op("Cast", [new], shape, site.result.dtype, {"to": site.result.dtype})
    replace_value(site.result, builder.reshape(new, dims(site.result)))
