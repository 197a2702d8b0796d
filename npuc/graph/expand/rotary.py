"""Rotary embedding operators: of the standard (set 23) and of onnxruntime."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.expand.place import ENDLESS, Place


def rotated(place: Place, x: ir.Value, cos: ir.Value, sin: ir.Value, interleaved: bool) -> ir.Value:
    """x [B, H, S, D] with its first R channels turned. cos, sin: of the angles, broadcast against [B, H, S, R / 2]."""
    half = place.extent(cos, -1)
    zero, both, end = place.ints(0), place.op("Add", half, half), place.ints(ENDLESS)
    turned, rest = place.cut(x, zero, both), place.cut(x, both, end)
    if interleaved:
        a, b = place.cut(turned, zero, end, step=2), place.cut(turned, place.ints(1), end, step=2)
    else:
        a, b = place.cut(turned, zero, half), place.cut(turned, half, end)
    first = place.op("Sub", place.op("Mul", a, cos), place.op("Mul", b, sin))
    second = place.op("Add", place.op("Mul", b, cos), place.op("Mul", a, sin))
    if interleaved:
        last = place.ints(-1)
        pairs = place.op("Concat", place.op("Unsqueeze", first, last), place.op("Unsqueeze", second, last), axis=-1)
        return place.op("Concat", place.op("Reshape", pairs, place.ints(0, 0, 0, -1)), rest, axis=-1)
    return place.op("Concat", first, second, rest, axis=-1)


def _apply(place: Place, x: ir.Value, cos: ir.Value, sin: ir.Value, positions: ir.Value | None) -> None:
    if place.attrs.get("is_packed_batching", 0) or place.attrs.get("scale", 1.0) != 1.0:
        place.refuse("packed batches and a scale are not supported")
    if positions is not None:
        cos, sin = (place.op("Gather", table, positions, axis=0) for table in (cos, sin))
    cos_rows, sin_rows = (place.op("Unsqueeze", table, place.ints(1)) for table in (cos, sin))
    interleaved = bool(place.attrs.get("interleaved", 0))
    if x.shape is None:
        place.refuse("the rank of its first input is not known")
    if x.shape is not None and len(x.shape) == 4:
        place.replace(rotated(place, x, cos_rows, sin_rows, interleaved))
        return
    count = place.attrs.get("num_heads", 0)
    if count:
        split = place.heads(x, count)
    else:  # the angles cover whole heads, so their number gives the head size
        half = place.extent(cos, -1)
        shape = place.op("Concat", place.ints(0, 0, -1), place.op("Add", half, half), axis=0)
        split = place.op("Transpose", place.op("Reshape", x, shape), perm=[0, 2, 1, 3])
    place.replace(place.merged(rotated(place, split, cos_rows, sin_rows, interleaved)))


def rotary_embedding(place: Place) -> None:
    """ai.onnx RotaryEmbedding (23): x, cos_cache, sin_cache, position_ids?."""
    _apply(place, place.required(0), place.required(1), place.required(2), place.input(3))


def rotary_embedding_ort(place: Place) -> None:
    """com.microsoft RotaryEmbedding: x, position_ids [B, S], cos_cache, sin_cache."""
    positions = place.required(1)
    if positions.shape is not None and len(positions.shape) != 2:
        place.refuse(f"position_ids of shape {positions.shape}; only one position for each token is supported")
    _apply(place, place.required(0), place.required(2), place.required(3), positions)
