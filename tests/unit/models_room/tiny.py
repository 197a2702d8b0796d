"""A GGUF file of a tiny llama, and what its model computes: a float64 formula in GGUF's own conventions.

The formula decodes the stored blocks itself and rotates neighbours (2j, 2j + 1) of the rows as the file holds them, as
GGUF's llama does, so it shares neither the order of rows nor the form of the rotation with the exported graph.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 96, 2, 4, 2, 16
THETA, EPSILON, POSITIONS = 10000.0, 1e-5, 64
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
MERGES = ["h e", "l l", "he ll", "Ġ a", "1 2"]
Q = gguf.GGMLQuantizationType


def byte_pieces() -> list[str]:
    """The 256 characters of byte-level vocabularies, in the order of their code points."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(code) for code in [*visible, *range(256, 256 + 256 - len(visible))]]


TOKENS = [*SPECIAL, *byte_pieces(), *(merge.replace(" ", "") for merge in MERGES)]


def tensors() -> dict[str, tuple[np.ndarray, Q]]:
    """Stored rows and their type by name."""
    random = np.random.default_rng(5)

    def stored(rows: int, columns: int, kind: Q) -> tuple[np.ndarray, Q]:
        values = random.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)
        return gguf.quantize(values, kind), kind

    def gains() -> tuple[np.ndarray, Q]:
        return random.uniform(0.5, 1.5, HIDDEN).astype(np.float32), Q.F32

    found = {"token_embd.weight": stored(len(TOKENS), HIDDEN, Q.Q8_0)}
    for i in range(LAYERS):
        kv = (KV_HEADS * HEAD_DIM, HIDDEN)
        sizes = {
            "attn_q": (HIDDEN, HIDDEN), "attn_k": kv, "attn_v": kv,
            "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN),
            "ffn_down": (HIDDEN, INNER),
        }  # fmt: skip
        for name, (rows, columns) in sizes.items():
            found[f"blk.{i}.{name}.weight"] = stored(rows, columns, Q.Q4_1)
        found |= {f"blk.{i}.{name}.weight": gains() for name in ("attn_norm", "ffn_norm")}
    return found | {"output_norm.weight": gains()}


def write_gguf(path: Path, stored: dict[str, tuple[np.ndarray, Q]] | None = None, **changed: object) -> Path:
    """Writes the file; `changed` replaces texts of the metadata: pre, arch."""
    writer = gguf.GGUFWriter(path, str(changed.get("arch", "llama")))
    writer.add_block_count(LAYERS)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(THETA)
    writer.add_rope_dimension_count(int(str(changed.get("turned", HEAD_DIM))))
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(str(changed.get("pre", "smollm")))
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, (rows, kind) in (stored or tensors()).items():
        writer.add_tensor(name, rows, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def decode(rows: np.ndarray, kind: Q) -> np.ndarray:
    """Stored rows as float64. A Q4_1 block: f16 d, f16 m, 16 bytes whose low halves come first; Q8_0: f16 d, 32 i8."""
    if kind is Q.F32:
        return rows.astype(np.float64)
    blocks = rows.reshape(len(rows), -1, 20 if kind is Q.Q4_1 else 34)
    d = blocks[..., 0:2].copy().view(np.float16).astype(np.float64)
    if kind is Q.Q8_0:
        return (d * blocks[..., 2:].copy().view(np.int8)).reshape(len(rows), -1)
    m = blocks[..., 2:4].copy().view(np.float16).astype(np.float64)
    halves = np.concatenate([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], axis=-1)
    return (d * halves + m).reshape(len(rows), -1)


def logits(ids: list[int]) -> np.ndarray:
    """Logits [len(ids), vocab] of the tiny model, float64."""
    w = {name: decode(*stored) for name, stored in tensors().items()}
    n = len(ids)
    angles = np.arange(n)[:, None] * THETA ** (-np.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    hidden_rows = np.triu(np.full((n, n), -np.inf), 1)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w[f"{name}.weight"]

    def turned(x: np.ndarray) -> np.ndarray:
        pairs = x.reshape(n, -1, HEAD_DIM // 2, 2)
        spun = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)[:, None]
        return np.stack([spun.real, spun.imag], -1).reshape(n, -1, HEAD_DIM)

    x = w["token_embd.weight"][ids]
    for i in range(LAYERS):
        part = {name: w[f"blk.{i}.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v", "attn_output",
                                                              "ffn_gate", "ffn_up", "ffn_down")}  # fmt: skip
        h = norm(x, f"blk.{i}.attn_norm")
        q, k = turned(h @ part["attn_q"].T), turned(h @ part["attn_k"].T)
        v = (h @ part["attn_v"].T).reshape(n, KV_HEADS, HEAD_DIM)
        mixed = []
        for head in range(HEADS):
            shared = head // (HEADS // KV_HEADS)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(HEAD_DIM) + hidden_rows
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            mixed.append(shares / shares.sum(-1, keepdims=True) @ v[:, shared])
        x = x + np.concatenate(mixed, -1) @ part["attn_output"].T
        h = norm(x, f"blk.{i}.ffn_norm")
        gate = h @ part["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ part["ffn_up"].T)) @ part["ffn_down"].T
    return norm(x, "output_norm") @ w["token_embd.weight"].T
