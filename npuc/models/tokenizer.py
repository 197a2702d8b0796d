"""The tokenizer of a GGUF file as the JSON files that exporters write: tokenizer.json and its companions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npuc.models.errors import PullError
from npuc.models.shape import DecoderShape

CONTROL = 3
"""GGUF's token type of special tokens, which no text spells."""

# How text is cut before the merges, by the GGUF name of the rule: smollm cuts digits one by one, then as GPT-2 does
PRE_TOKENIZERS: dict[str, list[dict[str, Any]]] = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ]
}


def tokenizer_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The tokenizer.json of a byte-level BPE tokenizer. PullError for another kind."""
    kind, cut = meta.get("tokenizer.ggml.model"), meta.get("tokenizer.ggml.pre")
    if kind != "gpt2" or cut not in PRE_TOKENIZERS:
        raise PullError(
            f"the tokenizer is of the kind {kind!r} with the rule {cut!r}: only 'gpt2' with 'smollm' is read"
        )
    if meta.get("tokenizer.ggml.add_bos_token") or meta.get("tokenizer.ggml.add_space_prefix"):
        raise PullError("the tokenizer puts a start token or a space in front, which is not supported")
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    special = [
        {"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind == CONTROL
    ]  # fmt: skip
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": PRE_TOKENIZERS[cut]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,  # a byte that the vocabulary lacks gives no token
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(meta: Mapping[str, Any], shape: DecoderShape) -> dict[str, Any]:
    """tokenizer_config.json: what other tools ask for beside the tokenizer."""
    tokens, ids = meta["tokenizer.ggml.tokens"], special_ids(meta)
    named = {f"{role}_token": tokens[i] for role, i in ids.items()}
    return {
        **named,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": shape.positions,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def special_ids(meta: Mapping[str, Any]) -> dict[str, int]:
    """Ids by role: bos, eos, unk, pad, as far as the file names them."""
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    found = {role: meta.get(f"tokenizer.ggml.{key}_token_id") for role, key in keys.items()}
    return {role: int(i) for role, i in found.items() if i is not None}


def model_config(meta: Mapping[str, Any], shape: DecoderShape) -> dict[str, Any]:
    """config.json."""
    return {
        **_generation_ids(meta),
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.inner,
        "max_position_embeddings": shape.positions,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "rms_norm_eps": shape.epsilon,
        "rope_theta": shape.theta,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "vocab_size": shape.vocab,
    }


def generation_config(meta: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json: the ids that start, end and pad an answer."""
    return _generation_ids(meta)


def _generation_ids(meta: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{role}_token_id": i for role, i in special_ids(meta).items() if role != "unk"}
