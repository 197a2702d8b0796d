"""Attention operators: of the standard (set 23, 24) and onnxruntime's GroupQueryAttention."""

from __future__ import annotations

import onnx_ir as ir

from npuc.graph.expand.place import Place
from npuc.graph.expand.rotary import rotated
from npuc.graph.nodes import DOMAIN

_LOWEST = {ir.DataType.FLOAT16: -65504.0}


def attend(
    place: Place,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    *,
    repeats: int,
    scale: float | None,
    softcap: float,
    bias: ir.Value | None = None,
    seen: ir.Value | None = None,
    sinks: ir.Value | None = None,
) -> ir.Value:
    """softmax(softcap(scale * q k^T) + bias, where seen) v for q [B, H, S, D], k and v [B, H / repeats, T, D].

    scale None is one over the root of D. seen: bool, broadcasts against [B, H, S, T]. sinks: [H], scores of a further
    column without a value.
    """
    if repeats > 1:
        k, v = _repeated(place, k, repeats), _repeated(place, v, repeats)
    scores = place.op("MatMul", q, place.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = place.op("Mul", scores, _factor(place, q, scale))
    if softcap:
        cap = place.number_like(softcap, q)
        scores = place.op("Mul", place.op("Tanh", place.op("Div", scores, cap)), cap)
    if bias is not None:
        scores = place.op("Add", scores, bias)
    if seen is not None:
        lowest = place.number_like(_LOWEST.get(q.dtype or ir.DataType.FLOAT, -3.4e38), q)
        scores = place.op("Where", seen, scores, lowest)
    if sinks is not None:
        column = place.op("Reshape", sinks, place.ints(1, -1, 1, 1))
        shape = place.op("Concat", place.extent(q, 0), place.ints(1), place.extent(q, 2), place.ints(1), axis=0)
        scores = place.op("Concat", scores, place.op("Expand", column, shape), axis=-1)
    weights = place.op("Softmax", scores, axis=-1)
    if sinks is not None:
        weights = place.cut(weights, place.ints(0), place.ints(-1))
    return place.op("MatMul", weights, v)


def _factor(place: Place, q: ir.Value, scale: float | None) -> ir.Value:
    if scale is not None:
        return place.number_like(scale, q)
    size = place.op("Cast", place.op("Squeeze", place.extent(q, -1)), to=ir.DataType.FLOAT)
    factor = place.op("Reciprocal", place.op("Sqrt", size))
    return factor if q.dtype in (None, ir.DataType.FLOAT) else place.op("Cast", factor, to=q.dtype)


def _repeated(place: Place, x: ir.Value, repeats: int) -> ir.Value:
    """[B, G, T, D] with every group repeated."""
    wide = place.op("Expand", place.op("Unsqueeze", x, place.ints(2)), place.ints(1, 1, repeats, 1, 1))
    heads = place.op("Mul", place.extent(x, 1), place.ints(repeats))
    shape = place.op("Concat", place.ints(0), heads, place.ints(-1), place.extent(x, -1), axis=0)
    return place.op("Reshape", wide, shape)


def attention(place: Place) -> None:
    """ai.onnx Attention (23 to 25): Q, K, V, attn_mask?, past_key?, past_value?, nonpad_kv_seqlen?; Y, present_key?,
    present_value?."""
    attrs = place.attrs
    q, k, v = (place.required(i) for i in range(3))
    heads, groups = attrs.get("q_num_heads", 0), attrs.get("kv_num_heads", 0)
    flat = q.shape is not None and len(q.shape) == 3
    kind = q.type
    if flat:
        q, k, v = place.heads(q, heads), place.heads(k, groups), place.heads(v, groups)
        q.type = kind
    elif q.shape is not None and k.shape is not None and isinstance(q.shape[1], int) and isinstance(k.shape[1], int):
        heads, groups = q.shape[1], k.shape[1]
    else:
        place.refuse("the number of heads of Q and K is not known")
    if place.input(4) is not None:
        k = place.op("Concat", place.required(4), k, axis=2)
        v = place.op("Concat", place.required(5), v, axis=2)
    mask = place.input(3)
    is_bool = mask is not None and mask.dtype == ir.DataType.BOOL
    seen = _seen_by_order(place, q, k)
    if is_bool:
        seen = mask if seen is None else place.op("And", mask, seen)
    result = attend(
        place,
        q,
        k,
        v,
        repeats=heads // groups,
        scale=attrs.get("scale", 0.0) or None,
        softcap=attrs.get("softcap", 0.0),
        bias=None if is_bool else mask,
        seen=seen,
    )
    place.replace(place.merged(result) if flat else result, k, v)


def _seen_by_order(place: Place, q: ir.Value, k: ir.Value) -> ir.Value | None:
    """What is_causal, the window and nonpad_kv_seqlen of Attention let a row see: bool, for scores [B, H, S, T].

    Row i stands at slot i + offset: behind the past where past_key holds it, behind the filled slots but for the new
    rows where nonpad_kv_seqlen counts them, else at i.
    """
    left, right = (place.attrs.get(f"{side}_window_size", -1) for side in ("left", "right"))
    right = 0 if place.attrs.get("is_causal", 0) else right
    filled = place.input(6)
    if left < 0 and right < 0 and filled is None:
        return None
    slots = place.op("Range", place.whole(0), place.op("Squeeze", place.extent(k, 2)), place.whole(1))
    conditions = []
    if left >= 0 or right >= 0:
        new = place.extent(q, 2)
        row = place.op("Range", place.whole(0), place.op("Squeeze", new), place.whole(1))
        position = place.op("Unsqueeze", row, place.ints(1))
        if place.input(4) is not None:
            position = place.op("Add", position, place.extent(place.required(4), 2))
        elif filled is not None:
            position = place.op("Add", position, place.op("Sub", _per_batch(place, filled), new))
        if right >= 0:
            last = position if right == 0 else place.op("Add", position, place.whole(right))
            conditions.append(place.op("LessOrEqual", slots, last))
        if left >= 0:
            conditions.append(place.op("GreaterOrEqual", slots, place.op("Sub", position, place.whole(left))))
    if filled is not None:
        conditions.append(place.op("Less", slots, _per_batch(place, filled)))
    result = conditions[0]
    for condition in conditions[1:]:
        result = place.op("And", result, condition)
    return result


def _per_batch(place: Place, count: ir.Value) -> ir.Value:
    """[B] as [B, 1, 1, 1]."""
    return place.op("Reshape", count, place.ints(-1, 1, 1, 1))


def group_query_attention(place: Place) -> None:
    """com.microsoft GroupQueryAttention: query (or packed qkv), key?, value?, past_key, past_value, seqlens_k,
    total_sequence_length, cos_cache?, sin_cache?, position_ids?, attention_bias?, head_sink?.

    seqlens_k is the number of tokens after the run, less one. In a cache that grows the new ones sit at the end; where
    past and present are one buffer of a fixed size, they are written behind the old ones. smooth_softmax is a sink of
    score 0 in every head.
    """
    attrs = place.attrs
    for index, what in ((9, "position_ids"), (12, "k_scale")):
        if place.input(index) is not None:
            place.refuse(f"{what} is not supported")
    heads, groups = attrs["num_heads"], attrs["kv_num_heads"]
    q, k, v = _separate(place, heads, groups)
    rows = place.op("Squeeze", place.extent(q, 2))
    last = place.op("Cast", place.op("Squeeze", place.required(5)), to=ir.DataType.INT64)
    total = place.op("Add", last, place.whole(1))
    positions = place.op("Range", place.op("Sub", total, rows), total, place.whole(1))
    if attrs.get("do_rotary", 0):
        cos, sin = (place.op("Gather", place.required(i), positions, axis=0) for i in (7, 8))
        interleaved = bool(attrs.get("rotary_interleaved", 0))
        q, k = (rotated(place, x, cos, sin, interleaved) for x in (q, k))
    k, v = (_with_past(place, index, new, place.op("Sub", total, rows)) for index, new in ((3, k), (4, v)))
    q.type = place.required(0).type
    sinks = place.input(11)
    if sinks is None and attrs.get("smooth_softmax", 0) == 1:
        sinks = place.numbers_like([0.0] * heads, q)
    slots = place.op("Range", place.whole(0), place.op("Squeeze", place.extent(k, 2)), place.whole(1))
    seen = _visible(place, positions, slots, attrs.get("local_window_size", -1))
    result = attend(
        place,
        q,
        k,
        v,
        repeats=heads // groups,
        scale=attrs.get("scale", 0.0) or None,
        softcap=attrs.get("softcap", 0.0),
        bias=place.input(10),
        seen=seen,
        sinks=sinks,
    )
    place.replace(place.merged(result), k, v)


def _with_past(place: Place, index: int, new: ir.Value, first: ir.Value) -> ir.Value:
    """Past and new rows: written at row `first` of a buffer of a fixed size, else joined."""
    past = place.required(index)
    present = place.node.outputs[index - 2] if len(place.node.outputs) > index - 2 else None
    extents = [v.shape[2] if v is not None and v.shape is not None else None for v in (past, present)]
    if isinstance(extents[0], int) and extents[0] == extents[1]:
        return place.op("WriteRows", past, new, first, domain=DOMAIN)
    return place.op("Concat", past, new, axis=2)


def _separate(place: Place, heads: int, groups: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Queries, keys and values as [B, heads, S, D], from three inputs or a packed one."""
    key, value = place.input(1), place.input(2)
    if key is not None and value is not None:
        return place.heads(place.required(0), heads), place.heads(key, groups), place.heads(value, groups)
    packed = place.heads(place.required(0), heads + 2 * groups)
    q, k, v = place.ops("Split", packed, place.ints(heads, groups, groups), outputs=3, axis=1)
    return q, k, v


def _visible(place: Place, positions: ir.Value, slots: ir.Value, window: int) -> ir.Value:
    """bool [S, T]: a row sees the slots up to its own position, with a window only the last `window` of them."""
    row, slot = place.op("Unsqueeze", positions, place.ints(1)), place.op("Unsqueeze", slots, place.ints(0))
    seen = place.op("LessOrEqual", slot, row)
    if window > 0:
        near = place.op("Greater", slot, place.op("Sub", row, place.whole(window)))
        seen = place.op("And", seen, near)
    return seen
