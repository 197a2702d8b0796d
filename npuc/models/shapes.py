"""Decoders that npuc knows by their sizes alone, as data."""

from __future__ import annotations

from dataclasses import dataclass

from npuc.models.shape import DecoderShape, Experts, Windows


@dataclass(frozen=True)
class NamedShape:
    """A published model's sizes. source: where they are published."""

    name: str
    summary: str
    source: str
    shape: DecoderShape


SHAPES = {
    found.name: found
    for found in (
        NamedShape(
            "smollm2-135m", "SmolLM2 135M",
            "config.json of HuggingFaceTB/SmolLM2-135M-Instruct",
            DecoderShape(49152, 576, 1536, 30, 9, 3, 64, positions=8192, theta=1e5, epsilon=1e-5),
        ),
        NamedShape(
            "llama2-7b", "Llama 2 7B",
            "config.json of meta-llama/Llama-2-7b-hf; Llama 2 paper, arXiv 2307.09288",
            DecoderShape(32000, 4096, 11008, 32, 32, 32, 128, positions=4096, theta=1e4, epsilon=1e-5, tied=False),
        ),
        NamedShape(
            "qwen3-8b", "Qwen3 8B: grouped queries, a norm over each head",
            "config.json of Qwen/Qwen3-8B; Qwen3 technical report, arXiv 2505.09388",
            DecoderShape(
                151936, 4096, 12288, 36, 32, 8, 128, positions=40960, theta=1e6, epsilon=1e-6, tied=False,
                head_norms=True,
            ),
        ),
        NamedShape(
            "gemma3-4b", "Gemma 3 4B, the text part: 5 windowed layers to 1, 4 norms a layer",
            "config.json of google/gemma-3-4b-it, its text part; Gemma 3 technical report, arXiv 2503.19786",
            DecoderShape(
                262144, 2560, 10240, 34, 8, 4, 256, positions=131072, theta=1e6, epsilon=1e-6, stretch=8.0,
                head_norms=True, post_norms=True, activation="gelu", scaled_embedding=True,
                windows=Windows(1024, 6, 1e4),
            ),
        ),
        NamedShape(
            "qwen3-30b-a3b", "Qwen3 30B-A3B: 8 of 128 experts a layer",
            "config.json of Qwen/Qwen3-30B-A3B; Qwen3 technical report, arXiv 2505.09388",
            DecoderShape(
                151936, 2048, 768, 48, 32, 4, 128, positions=40960, theta=1e6, epsilon=1e-6, tied=False,
                head_norms=True, experts=Experts(128, 8),
            ),
        ),
    )
}  # fmt: skip
