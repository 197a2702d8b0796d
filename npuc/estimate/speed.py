"""Time to the first token, and time of a token while the context grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Generic, Protocol, TypeVar

from npuc.estimate.subject import Subject


class Timed(Protocol):
    """One run of an entry: an estimate or a bound."""

    @property
    def seconds(self) -> float: ...


Run = TypeVar("Run", bound=Timed)


@dataclass(frozen=True)
class Speed(Generic[Run]):
    """Seconds. first_token: all chunks of the prompt, then the head. token: the mean over the new tokens, head
    included. prefill, generate, head: the last chunk, the token in the middle of the answer, and the head."""

    first_token: float
    token: float
    prefill: Run
    generate: Run
    head: Run


def speed_of(subject: Subject, run: Callable[[str, int], Run]) -> Speed[Run]:
    """run: of the entry "prefill", "generate" or "head" with n_past valid rows. Each is asked for three steps at most:
    between those a time is taken to be linear in n_past."""
    head = run("head", 0)
    chunks, steps = chunk_starts(subject), token_steps(subject)
    reads = [run("prefill", past) for past in sample(chunks)]
    writes = [run("generate", past) for past in sample(steps)]
    first = mean([found.seconds for found in reads]) * len(chunks) + head.seconds
    token = mean([found.seconds for found in writes]) + head.seconds
    return Speed(first, token, reads[-1], writes[len(writes) // 2], head)


def chunk_starts(subject: Subject) -> range:
    """n_past of each prefill run."""
    assert subject.graphs.llm is not None
    chunk = subject.graphs.llm.chunk
    return range(0, ceil(subject.prompt / chunk) * chunk, chunk)


def token_steps(subject: Subject) -> range:
    """n_past of each generate run; the first new token comes out of the prompt, so one run less than tokens."""
    return range(subject.prompt, subject.prompt + max(1, subject.tokens - 1))


def sample(steps: Sequence[int]) -> list[int]:
    """First, middle and last of equally spaced steps, each once."""
    return sorted({steps[0], steps[(len(steps) - 1) // 2], steps[-1]})


def mean(values: Sequence[float]) -> float:
    """The mean of a function that is linear between its one to three samples, which are equally spaced."""
    if len(values) < 3:
        return sum(values) / len(values)
    first, middle, last = values
    return (first + 2 * middle + last) / 4
