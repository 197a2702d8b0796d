"""The llama architecture in GGUF: its sizes, and which tensors it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuc.models.errors import PullError


@dataclass(frozen=True)
class LlamaShape:
    """Sizes of a decoder of the llama kind with tied embeddings.

    heads, kv_heads: query heads, and heads of keys and values. inner: width of the feed-forward part. positions: the
    longest sequence. theta: base of the rotary angles. epsilon: of RMSNorm.
    """

    vocab: int
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    positions: int
    theta: float
    epsilon: float

    @classmethod
    def from_metadata(cls, meta: Mapping[str, Any]) -> LlamaShape:
        """Reads the `llama.*` keys. PullError for another architecture, a missing key, or sizes that do not fit."""
        architecture = meta.get("general.architecture")
        if architecture != "llama":
            raise PullError(f"the GGUF file holds a model of the architecture {architecture!r}, and only llama is read")
        try:
            heads, hidden = int(meta["llama.attention.head_count"]), int(meta["llama.embedding_length"])
            shape = cls(
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
        if shape.heads * shape.head_dim != hidden or shape.heads % shape.kv_heads or turned != shape.head_dim:
            raise PullError(
                f"the GGUF file has {heads} query and {shape.kv_heads} key heads, hidden size {hidden} and {turned} "
                "rotary dimensions, which do not fit together"
            )
        return shape

    @property
    def kv_width(self) -> int:
        """Width of the keys of all heads."""
        return self.kv_heads * self.head_dim

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Name and shape [out, in] of each tensor of the GGUF file; the head is `token_embd.weight` again."""
        h, kv, inner = self.hidden, self.kv_width, self.inner
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocab, h)}
        for i in range(self.layers):
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
