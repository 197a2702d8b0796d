"""What a generation is asked for, what it gives token by token, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from .errors import OptionError
from .sampling import Sampling

GREEDY = Sampling()


class StopReason(StrEnum):
    """Why an answer ended."""

    MAX_TOKENS = "max_tokens"  # as many tokens as were asked for
    EOS = "eos"  # the model chose an end token
    STOP_STRING = "stop_string"  # the text reached a stop string
    CONTEXT_FULL = "context_full"  # the largest cache has no place for another token


@dataclass(frozen=True)
class Request:
    """Options of one generation.

    max_new_tokens: most tokens of the answer, None for as many as the context holds. stop: strings that end the answer.
    force_ids: fed in place of the first chosen tokens, one for one; the answer still lists the chosen ones, and no end
    token ends it before the last forced id has been fed. eos: end tokens in place of the blob's. collect_logits: keep
    the logits of every prompt position and after every fed token.

    Errors: OptionError where a number is out of range, or where both stop and force_ids are given.
    """

    max_new_tokens: int | None = None
    sampling: Sampling = GREEDY
    stop: tuple[str, ...] = ()
    force_ids: tuple[int, ...] = ()
    eos: tuple[int, ...] | None = None
    collect_logits: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None and self.max_new_tokens < 1:
            raise OptionError(f"--max-new-tokens is {self.max_new_tokens}: it must be 1 or more")
        if self.stop and self.force_ids:
            raise OptionError("--stop and --force-ids exclude each other: forced ids are fed to the last one")


@dataclass(frozen=True)
class Piece:
    """One chosen token, and the text that it completes (empty while a character or a stop string is undecided)."""

    token: int
    text: str


@dataclass
class Stats:
    """Counts and host seconds of one generation. capacities: the cache sizes that were used, in order of use."""

    prompt_tokens: int = 0
    fed_tokens: int = 0
    prefill_runs: int = 0
    head_runs: int = 0
    prefill_seconds: float = 0.0
    generate_seconds: float = 0.0
    capacities: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Result:
    """A finished generation.

    tokens: the chosen ids; an end token is the last of them. text: None where the blob carries no tokenizer; without
    special tokens, and cut before a stop string. prompt_logits: float32 [n, vocab]. step_logits: float32 [k, vocab],
    after each fed token. Both are None unless they were asked for.
    """

    tokens: list[int]
    text: str | None
    stop_reason: StopReason
    stats: Stats
    prompt_logits: NDArray[np.float32] | None = None
    step_logits: NDArray[np.float32] | None = None
