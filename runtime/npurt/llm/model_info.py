"""The language model of a blob, read from its metadata: sizes, limits, entries and end tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npurt.errors import BlobError

from .errors import NoLanguageModelError, PromptError

PREFILL, HEAD = "prefill", "head"


@dataclass(frozen=True)
class ModelInfo:
    """Sizes and limits of the language model of one blob.

    vocab: number of token ids. chunk: rows of `prefill`. step_rows: rows of `generate` and `head`: 1, or more where the
    model was exported with a fixed number; the first one counts. max_prompt_len: most prompt tokens. capacities: cache
    places of each `generate` entry, ascending. eos: ids that end an answer. bos: the start id, or None. ids_dtype:
    element type of `input_ids` on the device. whole_runs: `prefill` takes whole chunks only; the rest of a prompt goes
    through `generate`.
    """

    vocab: int
    chunk: int
    step_rows: int
    max_prompt_len: int
    capacities: tuple[int, ...]
    eos: tuple[int, ...]
    bos: int | None
    ids_dtype: np.dtype[Any]
    whole_runs: bool = False

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> ModelInfo:
        """Reads the metadata object. Errors: NoLanguageModelError where the blob holds a plain graph; BlobError where
        what the metadata says of the language model cannot be."""
        try:
            llm = meta["llm"]
            if llm is None:
                names = ", ".join(entry["name"] for entry in meta["entries"])
                raise NoLanguageModelError(
                    f"the blob holds no language model (entries: {names}): use `npuc exec` for a plain graph"
                )
            prefill = next(entry for entry in meta["entries"] if entry["name"] == PREFILL)
            ids = next(port for port in prefill["inputs"] if port["name"] == "input_ids")
            return cls(
                vocab=_size(llm["vocab"]),
                chunk=_size(llm["chunk"]),
                step_rows=_size(next(e["rows"] for e in meta["entries"] if e["name"].startswith("generate."))),
                max_prompt_len=_size(llm["max_prompt_len"]),
                capacities=_sizes(llm["capacities"]),
                eos=tuple(map(int, llm["eos"])),
                bos=None if llm["bos"] is None else int(llm["bos"]),
                ids_dtype=np.dtype(np.int64 if ids["dtype"] == "i64" else np.int32),
                whole_runs=bool(prefill.get("whole_runs", False)),
            )
        except (LookupError, TypeError, ValueError, StopIteration) as error:
            raise BlobError(f"the metadata of the language model is damaged: {error!r}") from error

    @property
    def context(self) -> int:
        """Cache places of the largest entry: prompt and answer together."""
        return self.capacities[-1]

    def generate_entry(self, n_past: int) -> tuple[str, int]:
        """Name and capacity of the smallest entry that holds `n_past` rows and a new one; n_past < context."""
        capacity = next(capacity for capacity in self.capacities if capacity > n_past)
        return f"generate.{capacity}", capacity

    def check_prompt(self, prompt: Sequence[int]) -> None:
        """Errors: PromptError for an empty or too long prompt, or an id outside the vocabulary."""
        limit = min(self.max_prompt_len, self.context)
        if not prompt:
            raise PromptError(f"the prompt has 0 tokens: it needs at least 1 and at most {limit} (--max-prompt-len)")
        if len(prompt) > limit:
            raise PromptError(
                f"the prompt has {len(prompt)} tokens and the limit is {limit}: shorten it, "
                f"or compile with --max-prompt-len {len(prompt)} or more"
            )
        self.check_ids(prompt, "the prompt")

    def check_ids(self, ids: Sequence[int], whose: str) -> None:
        """Errors: PromptError where an id is outside the vocabulary; `whose` names the list in the message."""
        for place, token in enumerate(ids):
            if not 0 <= token < self.vocab:
                raise PromptError(
                    f"{whose} has the id {token} at place {place}: ids of this model are 0 to {self.vocab - 1}"
                )


def _sizes(values: Any) -> tuple[int, ...]:
    sizes = tuple(sorted(_size(value) for value in values))
    if not sizes:
        raise ValueError("there are no capacities")
    return sizes


def _size(value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is no size")
    return value
