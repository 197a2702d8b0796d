"""Interleaved rounds: each takes one measurement of every runner in turn, so that other load hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import numpy as np

from benchmarks.runners import Runner

SEED = 0


@dataclass(frozen=True)
class Rounds:
    """Seconds of each runner, by name, round by round; of `tokens` tokens each."""

    what: str
    tokens: int
    seconds: Mapping[str, list[float]]

    def rate(self, name: str) -> float:
        """Median tokens a second."""
        return self.tokens / median(self.seconds[name])

    def ratio(self, name: str, other: str) -> float:
        """Median over the rounds of how much faster `name` is than `other` within a round."""
        pairs = zip(self.seconds[name], self.seconds[other], strict=True)
        return median(theirs / own for own, theirs in pairs)


def prefill_rounds(runners: Mapping[str, Runner], tokens: int, rounds: int, vocab: int) -> Rounds:
    """Prompts of `tokens`, a new one in each round. One round more comes first and does not count."""
    numbers = np.random.default_rng(SEED)
    prompts = [numbers.integers(0, vocab, tokens) for _ in range(rounds + 1)]
    return _rounds(f"prefill {tokens}", tokens, runners, rounds, lambda runner, turn: runner.prompt(prompts[turn]))


def decode_rounds(runners: Mapping[str, Runner], prompt: int, rounds: int, vocab: int) -> Rounds:
    """Single tokens after a prompt. One round more comes first and does not count."""
    numbers = np.random.default_rng(SEED)
    ids = numbers.integers(0, vocab, prompt)
    for runner in runners.values():
        runner.prompt(ids)
    fed = numbers.integers(0, vocab, rounds + 1)
    what = f"decode after {prompt}"
    return _rounds(what, 1, runners, rounds, lambda runner, turn: runner.token(int(fed[turn]), prompt + turn))


def _rounds(
    what: str, tokens: int, runners: Mapping[str, Runner], rounds: int, run: Callable[[Runner, int], object]
) -> Rounds:
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for turn in range(rounds + 1):
        for name, runner in runners.items():
            clock = time.perf_counter()
            run(runner, turn)
            seconds[name].append(time.perf_counter() - clock)
    return Rounds(what, tokens, {name: values[1:] for name, values in seconds.items()})


def differences(runners: Mapping[str, Runner], tokens: int, vocab: int) -> dict[str, float]:
    """Largest difference of a prompt's last logits to those of the first runner, relative to their largest value."""
    ids = np.random.default_rng(SEED).integers(0, vocab, tokens)
    logits = {name: runner.prompt(ids).astype(np.float64) for name, runner in runners.items()}
    first = next(iter(logits.values()))
    return {name: float(np.abs(values - first).max() / np.abs(first).max()) for name, values in logits.items()}
