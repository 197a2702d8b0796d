"""The common half of all attention rules: from a site that a pattern has found to npuc.Attention, with every proof."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from npuc.graph.fuse.mask import Visibility
from npuc.graph.fuse.paths import Cache, check_cache, find_cache, find_query, product
from npuc.graph.fuse.rule import Rewrite, Scope
from npuc.graph.nodes import DOMAIN, Builder, dims, replace_value


@dataclass(frozen=True)
class AttentionSite:
    """Attention as written: softmax(softcap(scale * query x key) masked) x value.

    query: [.., C, D], all leading axes together the heads. key: [.., D, T]. value: [.., T, Dv]. result: [.., C, Dv].
    nodes: those that the rewrite replaces, for provenance.
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


def rewrite_attention(site: AttentionSite, scope: Scope) -> Rewrite | str:
    """The rewrite of a site, or the reason why it cannot be said as npuc.Attention."""
    if not site.visibility.causal and scope.rows > 1:
        return "new rows see the rows after them: only causal attention is supported"
    rows, size = dims(site.query)[-2:]
    if rows != scope.rows:
        return f"queries have {rows} rows, the run has {scope.rows}: heads and rows are mixed"
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
    if product(value_steps) != 1.0:
        return f"values are scaled by {product(value_steps)} on their way"
    query, factor = find_query(site.query, site.heads, rows, size, scope)
    scale = site.scale * factor * product(key_steps)
    return lambda: _build(site, scope, query, keys, values, scale)


def _build(site: AttentionSite, scope: Scope, query: ir.Value, keys: Cache, values: Cache, scale: float) -> None:
    last = site.result.producer()
    assert last is not None and query.dtype is not None and site.result.dtype is not None
    builder = Builder(scope.graph, last, site.nodes)
    rows, size = dims(site.query)[-2:]
    q = builder.reshape(query, (1, site.heads, rows, size))
    attrs: dict[str, float | int] = {"scale": scale, "softcap": site.softcap, "window": site.visibility.window}
    shape = (1, site.heads, rows, dims(values.joined)[-1])
    inputs = [q, keys.new, values.new, keys.past, values.past, scope.n_past]
    new = builder.op("Attention", inputs, shape, query.dtype, attrs, DOMAIN)
    if new.dtype != site.result.dtype:
        new = builder.op("Cast", [new], shape, site.result.dtype, {"to": site.result.dtype})
    replace_value(site.result, builder.reshape(new, dims(site.result)))
