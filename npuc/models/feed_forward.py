"""The feed-forward parts of a decoder's layer: one gated pair, or a mixture of experts."""

from __future__ import annotations

from npuc.models.builder import Builder
from npuc.models.shape import DecoderShape


def gated(g: Builder, shape: DecoderShape, h: str, name: str) -> str:
    """activation(h @ gate) * (h @ up) @ down, of h [batch, sequence, hidden]."""
    gate = _activated(g, shape, g.linear(h, f"{name}.gate_proj"))
    return g.linear(g.op("Mul", gate, g.linear(h, f"{name}.up_proj")), f"{name}.down_proj")


def mixture(g: Builder, shape: DecoderShape, h: str, name: str) -> str:
    """The chosen experts' results, weighted by a softmax over their scores: onnxruntime's operator MoE.

    Its weights are [experts, out, in]; rows of gate and up take turns in the first ones.
    """
    assert shape.experts is not None
    rows = g.op("Reshape", h, g.ints(-1, shape.hidden))
    scores = g.linear(rows, f"{name}.router")
    first, second = (f"{name}.experts.{part}_proj.weight" for part in ("gate_up", "down"))
    mixed = g.op(
        "MoE", rows, scores, first, "", second, domain="com.microsoft", k=shape.experts.chosen,
        activation_type="swiglu", activation_alpha=1.0, activation_beta=0.0, swiglu_fusion=1,
        normalize_routing_weights=1,
    )  # fmt: skip
    return g.op("Reshape", mixed, g.op("Shape", h))


def _activated(g: Builder, shape: DecoderShape, x: str) -> str:
    if shape.activation == "gelu":
        return g.op("Gelu", x, approximate="tanh")
    return g.op("Mul", x, g.op("Sigmoid", x))
