"""Choosing a token from logits: greedy, or drawn after penalty, temperature, top-k, top-p and min-p, in this order.

The order and the meaning of each option are those of Hugging Face's generation config, which models ship.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import OptionError

Floats = NDArray[np.float64]
LARGEST = 1e300  # of a score: differences stay numbers, whatever a model's overflow or an extreme penalty gives


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen.

    temperature: 0 takes the largest logit (ties: the lowest id) and ignores the cuts and the seed. top_k: keep the k
    likeliest, 0 keeps all. top_p: keep the likeliest tokens until their probabilities reach p. min_p: drop what is less
    likely than min_p times the likeliest. repetition_penalty: divide the positive and multiply the negative logits of
    tokens that already stand in the prompt or the answer; 1 changes nothing. seed: of the draws.

    Errors: OptionError names the option, its value and its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _require(0 <= self.temperature < math.inf, "--temperature", self.temperature, "a number of 0 or more")
        _require(self.top_k >= 0, "--top-k", self.top_k, "0 (keep all) or more")
        _require(0 < self.top_p <= 1, "--top-p", self.top_p, "above 0 and at most 1")
        _require(0 <= self.min_p <= 1, "--min-p", self.min_p, "from 0 to 1")
        _require(0 < self.repetition_penalty < math.inf, "--repetition-penalty", self.repetition_penalty, "above 0")
        _require(self.seed >= 0, "--seed", self.seed, "0 or more")


def _require(good: bool, option: str, value: float, wanted: str) -> None:
    if not good:
        raise OptionError(f"{option} is {value}: it must be {wanted}")


class Sampler:
    """Chooses tokens one after another; equal options, logits and history give equal tokens."""

    def __init__(self, options: Sampling) -> None:
        self.options = options
        self._random = np.random.Generator(np.random.PCG64(options.seed))

    def choose(self, logits: NDArray[np.float32], history: Sequence[int]) -> int:
        """The next token id. logits: [vocab]; history: ids of the prompt and of the answer so far."""
        scores = penalised(logits.astype(np.float64), history, self.options.repetition_penalty)
        if self.options.temperature == 0:
            return int(np.argmax(scores))
        kept, probabilities = distribution(scores, self.options)
        # The draw is a search in the cumulative sum: one number of the generator for each token, whatever was cut.
        place = np.searchsorted(np.cumsum(probabilities), self._random.random(), side="right")
        return int(kept[min(int(place), len(kept) - 1)])


def penalised(scores: Floats, history: Sequence[int], penalty: float) -> Floats:
    """Scores [vocab] with the repetition penalty on the ids of `history`."""
    if penalty == 1 or not history:
        return scores
    ids = np.unique(np.asarray(history, np.int64))
    changed = scores.copy()
    with np.errstate(over="ignore", under="ignore"):
        changed[ids] = np.where(scores[ids] > 0, scores[ids] / penalty, scores[ids] * penalty)
    return changed


def distribution(scores: Floats, options: Sampling) -> tuple[NDArray[np.int64], Floats]:
    """Ids that survive the cuts, likeliest first (ties: the lowest id first), and their probabilities, which sum to 1.

    scores: [vocab], after the penalty. Temperature must not be 0.
    """
    scores = np.nan_to_num(scores.clip(-LARGEST, LARGEST), nan=-LARGEST)
    order = np.argsort(-scores, kind="stable").astype(np.int64)
    if options.top_k:
        order = order[: options.top_k]
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp((scores[order] - scores[order[0]]) / options.temperature)
    probabilities = weights / weights.sum()
    if options.top_p < 1:
        before = np.cumsum(probabilities) - probabilities  # the likeliest has 0 before it, and so always stays
        probabilities = probabilities[before < options.top_p]
    if options.min_p > 0:
        probabilities = probabilities[probabilities >= options.min_p * probabilities[0]]
    return order[: len(probabilities)], probabilities / probabilities.sum()
