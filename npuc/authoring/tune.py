"""The search for tile sizes: every candidate that fits is scheduled and timed on the machine model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from npuc.answers import AnswerCache, plain_params, type_text
from npuc.authoring.choices import KernelChoice
from npuc.authoring.cost import cost_of
from npuc.authoring.errors import KernelSourceError
from npuc.authoring.source import FoundKernel
from npuc.schedule import OverflowRefused
from npuc.tile import Example, TraceCache
from npurt.target import Target

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Tried:
    """One candidate. seconds: its makespan, None where it does not fit; why: the reason then. cached: not timed now."""

    sizes: Mapping[str, Any]
    seconds: float | None
    ddr_bytes: int
    peak: int
    tasks: int
    why: str
    cached: bool


@dataclass(frozen=True)
class Tuning:
    """All candidates of one example in the order tried. given: the sizes that the example itself has, timed, too; None
    where it has none."""

    kernel: FoundKernel
    target: Target
    fixed: Mapping[str, Any]
    example: Example
    tried: tuple[Tried, ...]
    given: Tried | None

    @property
    def winner(self) -> Tried:
        """The fastest; of equal ones that with the fewest on-chip bytes, then the first tried."""
        timed = [each for each in (*self.tried, *([self.given] if self.given else [])) if each.seconds is not None]
        return min(timed, key=lambda each: (each.seconds or 0.0, each.peak))

    @property
    def reason(self) -> str:
        """Why the winner wins, against the sizes of the example, else against the slowest candidate."""
        timed = [each for each in self.tried if each.seconds]
        best, own = self.winner, self.given or max(timed, key=lambda each: each.seconds or 0.0)
        said = "the example's sizes" if self.given else f"the slowest, {own.sizes}"
        if len(self.tried) == 1 and self.given is None:
            return "the only candidate"
        if not best.seconds or not own.seconds:
            return "the example's own sizes do not fit"
        if plain_params(best.sizes) == plain_params(own.sizes):
            return "the example's own sizes are the fastest" if self.given else "the only one that fits"
        parts = [f"{own.seconds / best.seconds:.2f} x as fast as {said}"]
        for name, mine, other in (("tasks", best.tasks, own.tasks), ("DDR bytes", best.ddr_bytes, own.ddr_bytes)):
            if mine != other:
                parts.append(f"{mine} {name} instead of {other}")
        return ", ".join(parts)

    def choice(self) -> KernelChoice:
        best = self.winner
        assert best.seconds is not None, "a winner has been timed"
        types = tuple(type_text(type_) for type_ in self.example.types)
        name, digest = self.kernel.name, self.kernel.digest
        return KernelChoice(name, digest, self.target.name, types, self.fixed, best.sizes, best.seconds)


def tune(
    found: FoundKernel, example: Example, target: Target, cache: AnswerCache | None, progress: Progress,
    limit: int | None = None,
) -> Tuning:  # fmt: skip
    """Tries the candidates of the kernel's file. limit: at most so many. Errors: KernelSourceError, KernelError."""
    if found.candidates is None:
        raise KernelSourceError(
            f"kernel {found.name}: its file offers no candidates(types, params); define one that yields the tile sizes "
            "worth trying, as dicts"
        )
    candidates = list(_distinct(found.candidates(example.types, example.params)))[:limit]
    if not candidates:
        raise KernelSourceError(f"kernel {found.name}: candidates() yields nothing for the example")
    sized = set().union(*candidates)
    fixed = {name: value for name, value in example.params.items() if name not in sized}
    own = {name: value for name, value in example.params.items() if name in sized}
    traces = TraceCache()
    tried = []
    for number, sizes in enumerate(candidates):
        progress(f"{found.name}: {_words(sizes)}", number / len(candidates))
        tried.append(_try(found, example, target, fixed, sizes, cache, traces))
    given = _try(found, example, target, fixed, own, cache, traces) if own else None
    if all(each.seconds is None for each in (*tried, *([given] if given else []))):
        raise KernelSourceError(f"kernel {found.name}: no candidate fits {target.name}: {tried[-1].why}")
    return Tuning(found, target, fixed, example, tuple(tried), given)


def _try(
    found: FoundKernel, example: Example, target: Target, fixed: Mapping[str, Any], sizes: Mapping[str, Any],
    cache: AnswerCache | None, traces: TraceCache,
) -> Tried:  # fmt: skip
    question = {
        "what": "kernel cost", "kernel": found.digest, "name": found.kernel.name, "target": target.digest,
        "types": [type_text(type_) for type_ in example.types], "params": plain_params({**fixed, **sizes}),
        "step": dict(example.step),
    }  # fmt: skip
    known = None if cache is None else cache.get(question)
    if known is not None:
        return Tried(sizes, known["seconds"], known["ddr_bytes"], known["peak"], known["tasks"], known["why"], True)
    try:
        cost = cost_of(found.kernel, example, target, {**fixed, **sizes}, traces)
        tried = Tried(sizes, cost.seconds, cost.ddr_bytes, cost.peak, cost.tasks, "", False)
    except OverflowRefused as error:
        tried = Tried(sizes, None, 0, 0, 0, str(error).splitlines()[0], False)
    if cache is not None:
        cache.put(
            question,
            {"seconds": tried.seconds, "ddr_bytes": tried.ddr_bytes, "peak": tried.peak, "tasks": tried.tasks,
             "why": tried.why},
        )  # fmt: skip
    return tried


def _distinct(candidates: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    seen: set[str] = set()
    for sizes in candidates:
        key = repr(sorted(sizes.items()))
        if key not in seen:
            seen.add(key)
            yield sizes


def _words(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sizes.items())
