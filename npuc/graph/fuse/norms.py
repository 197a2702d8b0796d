"""RMSNorm and LayerNormalization, whatever they are written as.

A norm is found by its mean over the last axis. What the piece of graph round it computes is then measured on random
rows of several magnitudes, so casts, Div, Sqrt, Reciprocal, Pow and the order of the weight do not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import onnx_ir as ir

from npuc.graph.evaluate import EvaluationError
from npuc.graph.fuse.region import FLOATS, Region, forward_candidates, is_float_cast, nearest_source
from npuc.graph.fuse.rule import Rewrite, Scope
from npuc.graph.nodes import DOMAIN, Builder, attributes, constant, dims, is_op, replace_value

_ARITHMETIC = frozenset({"Pow", "Mul", "Add", "Sub", "Div", "Sqrt", "Reciprocal", "ReduceMean", "Cast"})
_LARGEST_EPSILON = 1e-2
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class _Norm:
    """y = centre(x) / sqrt(mean(centre(x)^2) + epsilon) * weight + bias."""

    centred: bool
    epsilon: float
    weight: np.ndarray
    bias: np.ndarray


class NormRule:
    """Pieces of arithmetic round a ReduceMean over the last axis become RMSNorm or LayerNormalization."""

    name = "norm"
    anchors = ("ReduceMean",)

    def match(self, node: ir.Node, scope: Scope) -> Rewrite | str | None:
        if not _over_last_axis(node) or node.inputs[0] is None or node.inputs[0].dtype not in FLOATS:
            return None
        best: tuple[Region, _Norm] | None = None
        reason = "nothing that follows it is a norm of one value"
        for result in forward_candidates(node.outputs[0], _through, limit=16):
            region = nearest_source(result, _through, lambda nodes: node in nodes, scope.order)
            if isinstance(region, str):
                continue
            norm = _measure(region)
            if norm is not None:
                best = (region, norm)
        if best is None:
            return reason if _looks_like_norm(node) else None
        return lambda: _rewrite(scope.graph, *best)


def _through(node: ir.Node) -> bool:
    if node.domain != "" or node.op_type not in _ARITHMETIC:
        return False
    return not is_op(node, "Cast") or is_float_cast(node)


def _over_last_axis(node: ir.Node) -> bool:
    axes = constant(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or axes.size != 1 or attributes(node).get("keepdims", 1) != 1 or node.inputs[0] is None:
        return False
    return int(axes.reshape(())) % len(dims(node.inputs[0])) == len(dims(node.inputs[0])) - 1


def _looks_like_norm(node: ir.Node) -> bool:
    near = forward_candidates(node.outputs[0], _through, limit=6)
    return any(is_op(use.node, "Sqrt") for value in near for use in value.uses())


def _measure(region: Region) -> _Norm | None:
    """The norm that a region computes, or None."""
    width = dims(region.sources[0])[-1]
    if dims(region.result)[-1] != width or width < 2:
        return None
    small = [c for c in (constant(v) for v in region.constants()) if c is not None and c.size == 1]
    epsilons = sorted({float(c.reshape(())) for c in small if 0 < float(c.reshape(())) <= _LARGEST_EPSILON}) or [0.0]
    for epsilon in epsilons:
        rows = _probe(width, epsilon)
        try:
            found = region.run([rows]).reshape(4, width)
            bias = region.run([np.zeros((1, width))]).reshape(width)
        except (EvaluationError, ValueError):
            return None
        if not (np.isfinite(found).all() and np.isfinite(bias).all()):
            return None
        for centred in (True,) if bias.any() else (False, True):  # an RMSNorm has no bias
            shifted = rows - rows.mean(-1, keepdims=True) if centred else rows
            unit = shifted / np.sqrt((shifted * shifted).mean(-1, keepdims=True) + epsilon)
            with np.errstate(all="ignore"):
                weight = (found[0] - bias) / unit[0]
            if np.allclose(unit * weight + bias, found, rtol=_TOLERANCE, atol=_TOLERANCE * np.abs(found).max()):
                return _Norm(centred, epsilon, weight, bias)
    return None


@lru_cache(maxsize=16)
def _probe(width: int, epsilon: float) -> np.ndarray:
    """Rows of four sizes, f64 [4, width]: of 1 and a mean, larger, of the root of epsilon, and below it."""
    small = np.sqrt(max(epsilon, 1e-12))
    size = np.array([[1.0], [30.0], [small], [0.1 * small]])
    rows = np.random.default_rng(0).normal(0, 1, (4, width)) * size + np.array([[0.3], [0], [0], [0]])
    rows.setflags(write=False)
    return np.asarray(rows)


def _rewrite(graph: ir.Graph, region: Region, norm: _Norm) -> None:
    result, source = region.result, region.sources[0]
    source = _before_cast(source, result)
    assert result.dtype is not None and source.dtype is not None
    last = result.producer()
    assert last is not None
    builder = Builder(graph, last, region.nodes)
    weight = _parameter(region, builder, norm.weight, source.dtype, f"{result.name}~weight")
    if not norm.centred:
        new = builder.op(
            "RMSNorm", [source, weight], dims(source), source.dtype, {"epsilon": norm.epsilon, "axis": -1}, DOMAIN
        )
    else:
        inputs = [source, weight]
        if norm.bias.any():
            inputs.append(_parameter(region, builder, norm.bias, source.dtype, f"{result.name}~bias"))
        attrs = {"epsilon": norm.epsilon, "axis": -1}
        new = builder.op("LayerNormalization", inputs, dims(source), source.dtype, attrs)
    if new.dtype != result.dtype:
        new = builder.op("Cast", [new], dims(source), result.dtype, {"to": result.dtype})
    replace_value(result, builder.reshape(new, dims(result)))


def _before_cast(source: ir.Value, result: ir.Value) -> ir.Value:
    """The value before a Cast whose type the result has again: both operators compute in f32 inside."""
    node = source.producer()
    if node is not None and is_float_cast(node) and node.inputs[0] is not None and node.inputs[0].dtype == result.dtype:
        return node.inputs[0]
    return source


def _parameter(region: Region, builder: Builder, values: np.ndarray, dtype: ir.DataType, name: str) -> ir.Value:
    """The model's own initializer if it has these values, else a new one."""
    for value in region.constants():
        array = constant(value)
        if array is None or value.dtype != dtype or array.shape != values.shape:
            continue
        if np.allclose(array.astype(np.float64), values, rtol=_TOLERANCE, atol=1e-12):
            return value
    return builder.constant(values.astype(dtype.numpy()), name)
