"""onnxruntime's convolution with a state: a Conv over the window and the new columns."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.expand.place import ENDLESS, Place


def causal_conv_with_state(place: Place) -> None:
    """com.microsoft CausalConvWithState: x [B, C, S], weight [C, 1, K], bias?, past_state [B, C, K - 1]?; y, present.

    y is the convolution of past_state and x; present are the last K - 1 columns of both.
    """
    attrs = place.attrs
    if attrs.get("ndim", 1) != 1 or attrs.get("state_window", 0):
        place.refuse("only one axis (ndim 1) and state_window 0 are supported")
    x, weight = place.required(0), place.required(1)
    if weight.shape is None or not isinstance(weight.shape[0], int) or not isinstance(weight.shape[2], int):
        place.refuse("the shape of its weight is not known")
    assert weight.shape is not None
    channels, taps = int(weight.shape[0]), int(weight.shape[2])
    past = place.input(3)
    if past is None:
        zeros = place.ints(0, 0, taps - 1, 0, 0, 0)
        joined = place.op("Pad", x, zeros, place.number_like(0.0, x))
    else:
        joined = place.op("Concat", past, x, axis=2)
    y = place.op("Conv", joined, weight, place.input(2), group=channels, kernel_shape=[taps])
    y.type = joined.type = x.type
    present = _last(place, joined, taps - 1)
    place.replace(_activated(place, y), present)


def _last(place: Place, value: ir.Value, count: int) -> ir.Value:
    """The last columns of [B, C, T]."""
    return place.op("Slice", value, place.ints(-count), place.ints(ENDLESS), place.ints(2), place.ints(1))


def _activated(place: Place, value: ir.Value) -> ir.Value:
    kind = place.attrs.get("activation", "none")
    name = kind.decode() if isinstance(kind, bytes) else str(kind)
    if name in ("silu", "swish"):
        return place.op("Mul", value, place.op("Sigmoid", value))
    if name not in ("none", ""):
        place.refuse(f"the activation {name!r} is none of none, silu, swish")
    return value
