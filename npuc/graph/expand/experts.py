"""onnxruntime's MoE: a router's softmax over the best experts, then npuc.MoE."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.experts.apply import experts_node, parameters
from npuc.graph.experts.form import Activation, Experts, Stack
from npuc.graph.nodes import constant

_KINDS = {"relu": "relu", "gelu": "gelu_tanh", "silu": "silu", "identity": "identity", "swiglu": "silu"}


def mixture(place: Place) -> None:
    """MoE: x, router logits [T, E], then weights [E, N, K] and biases [E, N] of up to three layers."""
    attrs = place.attrs
    kind = str(attrs.get("activation_type", "relu"))
    if kind not in _KINDS:
        place.refuse(f"activation_type {kind!r}; {', '.join(_KINDS)} are supported")
    if attrs.get("use_sparse_mixer", 0):
        place.refuse("use_sparse_mixer=1 is not supported")
    swiglu = kind == "swiglu"
    first, second = _layer(place, 2), _layer(place, 4)
    third = _layer(place, 6) if place.input(6) is not None else None
    if first is None or second is None:
        place.refuse("the weights of the experts must be constants [experts, rows, columns]")
    depth = second[0].shape[2]
    gate, up = first, third
    fusion = int(attrs.get("swiglu_fusion", 0)) if swiglu else 0
    if fusion and third is None:
        chosen = [(slice(0, None, 2), slice(1, None, 2)), (slice(0, depth), slice(depth, None))][fusion - 1]
        gate, up = ((w.part(part), None if b is None else b.part(part)) for w, b in [first] for part in chosen)
    if gate[0].shape[1] != depth or (up is not None and up[0].shape[1] != depth) or (swiglu and up is None):
        place.refuse(f"layers of {list(first[0].shape)} and {list(second[0].shape)} with swiglu_fusion {fusion}")
    limit = float(attrs.get("swiglu_limit", 0.0)) if swiglu else 0.0
    activation = Activation(
        _KINDS[kind], float(attrs.get("activation_alpha", 1.0)) if swiglu else 1.0,
        limit if np.isfinite(limit) else 0.0, float(attrs.get("activation_beta", 0.0)) if swiglu else 0.0,
    )  # fmt: skip
    experts = Experts(
        gate[0], None if up is None else up[0], second[0], gate[1], None if up is None else up[1], second[1]
    )
    indices, weights = _routing(place, int(attrs.get("k", 1)), bool(attrs.get("normalize_routing_weights", 0)))
    x = place.required(0)
    dtype = x.dtype or (place.required(2).dtype or ir.DataType.FLOAT)
    inputs = [x, indices, weights, *parameters(place.graph, experts, dtype, place.node, place.names)]
    place.replace(experts_node(place.graph, place.node, inputs, experts, activation, place.names, [place.node]))


def _layer(place: Place, number: int) -> tuple[Stack, Stack | None] | None:
    """Weights [E, N, K] of inputs `number`, biases [E, N] of the one after it."""
    weight, bias = place.required(number), place.input(number + 1)
    tensor = weight.const_value
    if tensor is None or len(tensor.shape) != 3 or (bias is not None and bias.const_value is None):
        return None
    stack = Stack.of(tuple(int(n) for n in tensor.shape.numpy()), tensor.numpy)
    if bias is None:
        return stack, None
    return stack, Stack.of(stack.shape[:2], lambda: np.asarray(constant(bias)))


def _routing(place: Place, k: int, normalise: bool) -> tuple[ir.Value, ir.Value]:
    """Expert numbers and weights [T, k]: softmax over the k best logits, or of all logits and then the k best."""
    logits, count = place.required(1), place.ints(k)
    if normalise:
        best, indices = place.ops("TopK", logits, count, outputs=2, axis=-1, largest=1, sorted=1)
        return indices, place.op("Softmax", best, axis=-1)
    weights, indices = place.ops(
        "TopK", place.op("Softmax", logits, axis=-1), count, outputs=2, axis=-1, largest=1, sorted=1
    )
    return indices, weights
