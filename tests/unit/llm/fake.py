"""A device for the session's tests: a formula of all tokens so far, behind the entries of a blob.

The formula needs no cache, so `expected_logits` is an independent answer. The device keeps a cache as the real one does
(rows written in place at n_past) and refuses what a session may never do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

VOCAB = 23


def expected_logits(tokens: Sequence[int]) -> NDArray[np.float32]:
    """Logits [VOCAB] after `tokens`: every token and its place count."""
    places = np.arange(1, len(tokens) + 1)
    mixed = int(np.sum((np.asarray(tokens) + 3) * places * places))
    return logits_of(mixed)


def logits_of(mixed: int) -> NDArray[np.float32]:
    wave = np.sin(np.arange(VOCAB) * 1.7 + mixed * 0.37)
    return np.asarray(wave, np.float32)


def greedy(prompt: Sequence[int], count: int) -> list[int]:
    """The greedy answer by the formula alone."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(expected_logits(tokens))))
    return tokens[len(prompt) :]


class FakeImage:
    """Metadata as a blob carries it."""

    def __init__(
        self,
        *,
        chunk: int = 4,
        max_prompt_len: int = 8,
        capacities: Sequence[int] = (10, 16),
        eos: Sequence[int] = (),
        assets: Mapping[str, bytes] | None = None,
    ) -> None:
        self.assets = dict(assets or {})
        self.meta: dict[str, Any] = {
            "llm": {
                "vocab": VOCAB,
                "chunk": chunk,
                "max_prompt_len": max_prompt_len,
                "capacities": list(capacities),
                "eos": list(eos),
                "bos": None,
            },
            "entries": [
                {"name": "prefill", "rows": chunk, "inputs": [{"name": "input_ids", "dtype": "i32"}]},
                *({"name": f"generate.{capacity}", "rows": 1, "inputs": []} for capacity in capacities),
                {"name": "head", "rows": 1, "inputs": []},
            ],
        }


class FakeDevice:
    """Runs the formula with a cache of physical rows, as many as the image's entries would share."""

    def __init__(self, image: FakeImage) -> None:
        llm = image.meta["llm"]
        self.chunk, self.capacities = llm["chunk"], llm["capacities"]
        self.cache = np.full(max(self.capacities) + self.chunk - 1, -999, np.int64)
        self.calls: list[tuple[str, int, int | None]] = []

    def reset(self) -> None:
        self.cache[:] = 0
        self.calls.clear()

    def run(
        self, entry: str, inputs: Mapping[str, NDArray[Any]], *, n_past: int = 0, n_new: int | None = None
    ) -> dict[str, NDArray[Any]]:
        self.calls.append((entry, n_past, n_new))
        if entry == "head":
            hidden = inputs["hidden"]
            assert hidden.shape == (1, 1, 2) and hidden.dtype == np.float16
            return {"logits": logits_of(int(hidden[0, 0, 0]) + 1024 * int(hidden[0, 0, 1])).reshape(1, 1, VOCAB)}
        ids = inputs["input_ids"]
        rows = self.chunk if entry == "prefill" else 1
        assert ids.shape == (1, rows) and ids.dtype == np.int32 and n_new is not None and 1 <= n_new <= rows
        if entry != "prefill":
            capacity = int(entry.removeprefix("generate."))
            assert n_past < capacity <= max(self.capacities)
        hidden = np.full((1, rows, 2), np.nan, np.float16)
        for row in range(n_new):
            self.cache[n_past + row] = ids[0, row]
            seen = self.cache[: n_past + row + 1] + 3
            mixed = int(np.sum(seen * np.arange(1, len(seen) + 1) ** 2))
            hidden[0, row] = mixed % 1024, mixed // 1024
        return {"hidden": hidden}
