"""The shape of the default model: the few numbers that the network, the exporter and the tests share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BOS = 0
"""Token id of the start of a passage."""
EOS = 1
"""Token id of the end of a passage."""


@dataclass(frozen=True)
class Shape:
    """A Llama decoder: grouped-query attention, RMSNorm, half-split rotary, SwiGLU, head tied to the embedding."""

    vocab: int = 2048
    hidden: int = 128
    layers: int = 5
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    intermediate: int = 384
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    positions: int = 512
    """Longest sequence in tokens, prompt and answer together, that the training has seen."""

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every weight. Matrices are [inputs, outputs], as MatMul(x, W) takes them."""
        h, q, kv, m = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim, self.intermediate
        shapes: dict[str, tuple[int, ...]] = {"embed": (self.vocab, h), "norm": (h,)}
        for i in range(self.layers):
            part = {
                "attn_norm": (h,),
                "q": (h, q),
                "k": (h, kv),
                "v": (h, kv),
                "o": (q, h),
                "mlp_norm": (h,),
                "gate": (h, m),
                "up": (h, m),
                "down": (m, h),
            }
            shapes.update({f"layers.{i}.{name}": shape for name, shape in part.items()})
        return shapes

    def config(self) -> dict[str, Any]:
        """The contents of config.json, with the field names that model folders use."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "attention_bias": False,
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.positions,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "tie_word_embeddings": True,
            "torch_dtype": "float16",
            "vocab_size": self.vocab,
        }


def shape_of(config: dict[str, Any]) -> Shape:
    """The inverse of `Shape.config`."""
    return Shape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate=config["intermediate_size"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
        positions=config["max_position_embeddings"],
    )
