"""The llama architecture in GGUF: its sizes, and which tensors it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuc.models.errors import PullError
from npuc.models.shape import DecoderShape


def shape_from_metadata(meta: Mapping[str, Any]) -> DecoderShape:
    """Reads the `llama.*` keys. PullError for another architecture, a missing key, or sizes that do not fit."""
    architecture = meta.get("general.architecture")
    if architecture != "llama":
        raise PullError(f"the GGUF file holds a model of the architecture {architecture!r}, and only llama is read")
    try:
        heads, hidden = int(meta["llama.attention.head_count"]), int(meta["llama.embedding_length"])
        shape = DecoderShape(
            vocab=len(meta["tokenizer.ggml.tokens"]),
            hidden=hidden,
            inner=int(meta["llama.feed_forward_length"]),
            layers=int(meta["llama.block_count"]),
            heads=heads,
            kv_heads=int(meta["llama.attention.head_count_kv"]),
            head_dim=hidden // heads,
            positions=int(meta["llama.context_length"]),
            theta=float(meta["llama.rope.freq_base"]),
            # Stored as f32; its shortest decimal is the number that was meant
            epsilon=float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.7g}"),
        )
        turned = int(meta["llama.rope.dimension_count"])
    except KeyError as error:
        raise PullError(f"the GGUF file has no metadata {error.args[0]}") from error
    if shape.query_width != hidden or shape.heads % shape.kv_heads or turned != shape.head_dim:
        raise PullError(
            f"the GGUF file has {heads} query and {shape.kv_heads} key heads, hidden size {hidden} and {turned} "
            "rotary dimensions, which do not fit together"
        )
    return shape


def gguf_tensors(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Name and shape [out, in] of each tensor of the GGUF file; the head is `token_embd.weight` again."""
    h, kv, inner = shape.hidden, shape.kv_width, shape.inner
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (shape.vocab, h)}
    for i in range(shape.layers):
        found |= {
            f"blk.{i}.attn_norm.weight": (h,),
            f"blk.{i}.attn_q.weight": (h, h),
            f"blk.{i}.attn_k.weight": (kv, h),
            f"blk.{i}.attn_v.weight": (kv, h),
            f"blk.{i}.attn_output.weight": (h, h),
            f"blk.{i}.ffn_norm.weight": (h,),
            f"blk.{i}.ffn_gate.weight": (inner, h),
            f"blk.{i}.ffn_up.weight": (inner, h),
            f"blk.{i}.ffn_down.weight": (h, inner),
        }
    return found | {"output_norm.weight": (h,)}
