"""onnxruntime's MultiHeadAttention: as many key heads as query heads, masks of padding, a past that grows."""

from __future__ import annotations

from itertools import pairwise

import onnx_ir as ir

from npuc.graph.expand.attention import attend
from npuc.graph.expand.place import Place


def multi_head_attention(place: Place) -> None:
    """com.microsoft MultiHeadAttention: query, key, value [B, S, H D], bias?, key_padding_mask?, attention_bias?,
    past_key?, past_value?; the result, present_key?, present_value?.

    unidirectional: a row sees the past and the new rows up to itself. key_padding_mask: [B, T], 0 hides a column.
    """
    for index, what in ((8, "past_sequence_length"), (9, "cache_indirection")):
        if place.input(index) is not None:
            place.refuse(f"{what} is not supported")
    heads, attrs = place.attrs["num_heads"], place.attrs
    if place.input(1) is None or place.input(2) is None:
        place.refuse("packed queries, keys and values are not supported")
    flat = [place.required(index) for index in range(3)]
    if any(value.shape is not None and len(value.shape) != 3 for value in flat):
        place.refuse("query, key and value must have three axes")
    q, k, v = (place.heads(value, heads) for value in _biased(place, flat))
    q.type = place.required(0).type
    past = place.input(6)
    if past is not None:
        k = place.op("Concat", past, k, axis=2)
        v = place.op("Concat", place.required(7), v, axis=2)
    seen = _conditions(place, q, k, past)
    result = attend(
        place, q, k, v, repeats=1, scale=attrs.get("scale", 0.0) or None, softcap=0.0, bias=place.input(5), seen=seen
    )
    place.replace(place.merged(result), k, v)


def _biased(place: Place, values: list[ir.Value]) -> list[ir.Value]:
    """Query, key and value with their parts of the bias [3 H D]; the value's part is the rest."""
    bias = place.input(3)
    if bias is None:
        return values
    size = place.extent(values[0], -1)
    ends = [place.ints(0), size, place.op("Add", size, size), place.op("Shape", bias)]
    parts = [place.cut(bias, first, last) for first, last in pairwise(ends)]
    return [place.op("Add", value, part) for value, part in zip(values, parts, strict=True)]


def _conditions(place: Place, q: ir.Value, k: ir.Value, past: ir.Value | None) -> ir.Value | None:
    """bool, for scores [B, H, S, T], or None where every column is seen."""
    found = []
    if place.attrs.get("unidirectional", 0):
        slots, rows = (
            place.op("Range", place.whole(0), place.op("Squeeze", place.extent(x, 2)), place.whole(1)) for x in (k, q)
        )
        position = place.op("Unsqueeze", rows, place.ints(1))
        if past is not None:
            position = place.op("Add", position, place.extent(past, 2))
        found.append(place.op("LessOrEqual", slots, position))
    padding = place.input(4)
    if padding is not None:
        if padding.shape is None or len(padding.shape) != 2:
            place.refuse("only a key_padding_mask [batch, columns] is supported")
        found.append(place.op("Unsqueeze", place.op("Cast", padding, to=ir.DataType.BOOL), place.ints(1, 2)))
    if len(found) == 2:
        return place.op("And", *found)
    return found[0] if found else None
