"""Generation with plain NumPy: a function from tokens to the logits of the next one is all it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .shape import EOS

Next = Callable[[Sequence[int]], NDArray[np.float32]]
"""All tokens so far -> the logits [vocab] of the next."""


def pick(logits: NDArray[np.float32], rng: np.random.Generator, temperature: float, top_k: int) -> int:
    """Draws one token among the `top_k` likeliest."""
    best = np.argsort(-logits, kind="stable")[:top_k]
    scaled = logits[best].astype(np.float64) / temperature
    share = np.exp(scaled - scaled.max())
    return int(best[np.searchsorted(np.cumsum(share) / share.sum(), rng.random(), side="right")])


def generate(
    following: Next,
    prompt: Sequence[int],
    count: int,
    rng: np.random.Generator | None = None,
    temperature: float = 0.8,
    top_k: int = 40,
    stop: bool = True,
) -> list[int]:
    """Up to `count` new tokens: sampled with `rng`, greedy without. `stop` ends at `</s>`; else it is never drawn."""
    tokens = list(prompt)
    for _ in range(count):
        logits = following(tokens).copy()
        if not stop:
            logits[EOS] = -np.inf
        token = pick(logits, rng, temperature, top_k) if rng is not None else int(np.argmax(logits))
        if token == EOS:
            break
        tokens.append(token)
    return tokens[len(prompt) :]
