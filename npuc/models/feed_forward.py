"""The feed-forward parts of a decoder's layer: one gated pair, or a mixture of experts."""

from __future__ import annotations

from npuc.models.builder import Builder
from npuc.models.shape import DecoderShape


def gated(g: Builder, shape: DecoderShape, h: str, name: str) -> str:
    """activation(h @ gate) * (h @ up) @ down, of h [batch, sequence, hidden]."""
    gate = _activated(g, shape, g.linear(h, f"{name}.gate_proj"))
    return g.linear(g.op("Mul", gate, g.linear(h, f"{name}.up_proj")), f"{name}.down_proj")


def mixture(g: Builder, shape: DecoderShape, h: str, name: str) -> str:
    """The sum of the chosen experts' results, weighted by their softmax scores, which are made to sum to 1.

    All experts are written out: each computes all rows, and the weight of one that was not chosen is 0. So a runtime
    that skips nothing gives the right numbers, and what a token must read and compute is a property of the TopK.
    """
    assert shape.experts is not None
    scores = g.op("Softmax", g.op("Reshape", g.linear(h, f"{name}.router"), g.ints(-1, shape.experts.count)), axis=-1)
    best, which = g.ops("TopK", 2, scores, g.ints(shape.experts.chosen), axis=-1)
    best = g.op("Div", best, g.op("ReduceSum", best, g.ints(-1), keepdims=1))
    nothing = g.op("Mul", scores, g.real(0.0))
    shares = g.op("ScatterElements", nothing, which, best, axis=-1)  # [rows, experts]
    rows = g.op("Reshape", h, g.ints(1, -1, shape.hidden))
    gate = _activated(g, shape, g.linear(rows, f"{name}.experts.gate_proj"))
    results = g.linear(g.op("Mul", gate, g.linear(rows, f"{name}.experts.up_proj")), f"{name}.experts.down_proj")
    weighted = g.op("Mul", results, g.op("Unsqueeze", g.op("Transpose", shares, perm=[1, 0]), g.ints(2)))
    total = g.op("ReduceSum", weighted, g.ints(0), keepdims=0)
    return g.op("Reshape", total, g.op("Shape", h))


def _activated(g: Builder, shape: DecoderShape, x: str) -> str:
    if shape.activation == "gelu":
        return g.op("Gelu", x, approximate="tanh")
    return g.op("Mul", x, g.op("Sigmoid", x))
