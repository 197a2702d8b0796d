"""Gelu from its formulas with Erf or Tanh, measured on a grid of numbers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import EvaluationError, evaluate
from npuc.graph.fuse.region import Region, forward_candidates, nearest_source
from npuc.graph.fuse.rule import Rewrite, Scope
from npuc.graph.nodes import Builder, dims, replace_value

_ARITHMETIC = frozenset({"Mul", "Add", "Sub", "Div", "Pow", "Tanh", "Erf"})
_GRID = np.concatenate([np.linspace(-8, 8, 201), [0.0, 1e-3, -1e-3]])
_TOLERANCE = 1e-5


class GeluRule:
    """Elementwise arithmetic round Erf or Tanh of one value becomes Gelu."""

    name = "gelu"
    anchors = ("Erf", "Tanh")

    def match(self, node: ir.Node, scope: Scope) -> Rewrite | str | None:
        for result in forward_candidates(node.outputs[0], _through, limit=8):
            region = nearest_source(result, _through, lambda nodes: node in nodes, scope.order)
            if isinstance(region, str):
                continue
            form = _measure(region)
            if form is not None:
                return lambda region=region, form=form: _rewrite(scope.graph, region, form)
        return None


def _through(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type in _ARITHMETIC


def _measure(region: Region) -> str | None:
    if any(value.const_value is not None and value.const_value.size != 1 for value in region.constants()):
        return None
    try:
        found = region.run([_GRID]).reshape(-1)
    except (EvaluationError, ValueError):
        return None
    for form in ("tanh", "none"):
        (expected,) = evaluate("", "Gelu", [_GRID], {"approximate": form})
        if np.allclose(found, expected, rtol=0, atol=_TOLERANCE):
            return form
    return None


def _rewrite(graph: ir.Graph, region: Region, form: str) -> None:
    source, last = region.sources[0], region.result.producer()
    assert last is not None and source.dtype is not None
    builder = Builder(graph, last, region.nodes)
    new = builder.op("Gelu", [source], dims(source), source.dtype, {"approximate": form})
    replace_value(region.result, builder.reshape(new, dims(region.result)))
