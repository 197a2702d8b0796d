"""A decoder's sizes as the config.json that stands beside published models, in both directions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from npuc.models.errors import PullError
from npuc.models.shape import DecoderShape, Experts, Windows

FAMILIES = ("llama", "mistral", "qwen3", "qwen3_moe", "mixtral", "gemma3_text")
HEAD_NORMS = ("qwen3", "qwen3_moe", "gemma3_text")
GEMMA = "gemma3_text"
# keys of the number of experts, of those chosen, and of the width of one
EXPERTS = {
    "qwen3_moe": ("num_experts", "num_experts_per_tok", "moe_intermediate_size"),
    "mixtral": ("num_local_experts", "num_experts_per_tok", "intermediate_size"),
}


def read_shape(path: Path) -> DecoderShape:
    """The sizes that a config.json gives. PullError for another family, a key that is missing, or sizes that do not
    fit; OSError where the file cannot be read.

    Only a linear scaling of positions is taken over: others change angles alone, and no cost depends on those.
    """
    try:
        config = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise PullError(f"{path}: no JSON: {error}") from error
    if not isinstance(config, dict):
        raise PullError(f"{path}: no JSON object")
    text = config.get("text_config")
    if isinstance(text, dict) and "model_type" in text:
        config = text
    family = config.get("model_type")
    if family not in FAMILIES:
        raise PullError(f"{path}: the model_type is {family!r}; known: {', '.join(FAMILIES)}")
    try:
        shape = _shape(family, config)
    except KeyError as error:
        raise PullError(f"{path}: there is no {error.args[0]!r}") from error
    except (TypeError, ValueError) as error:
        raise PullError(f"{path}: {error}") from error
    sizes = (shape.vocab, shape.hidden, shape.inner, shape.layers, shape.heads, shape.kv_heads, shape.head_dim)
    if min(sizes) < 1 or shape.heads % shape.kv_heads or shape.head_dim % 2:
        raise PullError(
            f"{path}: {shape.heads} query heads, {shape.kv_heads} key heads of {shape.head_dim}, {shape.layers} layers "
            f"of {shape.hidden} and {shape.inner}, {shape.vocab} tokens do not fit together"
        )
    return shape


def _shape(family: str, config: Mapping[str, Any]) -> DecoderShape:
    hidden, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    keys = EXPERTS.get(family)
    experts = None if keys is None else Experts(int(config[keys[0]]), int(config[keys[1]]))
    gemma, scaling = family == GEMMA, config.get("rope_scaling") or {}
    linear = scaling.get("rope_type", scaling.get("type")) == "linear"
    windows = None
    if gemma:
        period = int(config.get("sliding_window_pattern", 6))
        windows = Windows(int(config["sliding_window"]), period, float(config["rope_local_base_freq"]))
    return DecoderShape(
        vocab=int(config["vocab_size"]),
        hidden=hidden,
        inner=int(config["intermediate_size" if keys is None else keys[2]]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        positions=int(config["max_position_embeddings"]),
        theta=float(config.get("rope_theta", 10000.0)),
        epsilon=float(config["rms_norm_eps"]),
        tied=bool(config.get("tie_word_embeddings", gemma)),
        stretch=float(scaling["factor"]) if linear else 1.0,
        head_norms=family in HEAD_NORMS,
        post_norms=gemma,
        activation="gelu" if gemma else "silu",
        scaled_embedding=gemma,
        windows=windows,
        experts=experts,
    )


def shape_config(shape: DecoderShape) -> dict[str, Any]:
    """The config.json of a shape; `read_shape` gives it back."""
    family = _family(shape)
    inner = EXPERTS[family][2] if shape.experts is not None else "intermediate_size"
    found: dict[str, Any] = {
        "head_dim": shape.head_dim,
        "hidden_size": shape.hidden,
        inner: shape.inner,
        "max_position_embeddings": shape.positions,
        "model_type": family,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.vocab,
    }
    if shape.experts is not None:
        found |= dict(zip(EXPERTS[family][:2], (shape.experts.count, shape.experts.chosen), strict=True))
    if shape.windows is not None:
        found |= {
            "rope_local_base_freq": shape.windows.theta,
            "sliding_window": shape.windows.size,
            "sliding_window_pattern": shape.windows.period,
        }
    if shape.stretch != 1.0:
        found["rope_scaling"] = {"factor": shape.stretch, "rope_type": "linear"}
    return dict(sorted(found.items()))


def _family(shape: DecoderShape) -> str:
    if shape.experts is not None:
        return "qwen3_moe" if shape.head_norms else "mixtral"
    if shape.windows is not None:
        return GEMMA
    return "qwen3" if shape.head_norms else "llama"
