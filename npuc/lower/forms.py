"""Which of several kernels that compute the same is used for a call: the one that is fastest on the target's model.

Each form is tried with its tile sizes: its tasks are scheduled alone, in the memory that the call may use, and timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from npuc.answers import AnswerCache, plain_params, sources_digest, type_text
from npuc.lower.context import KernelCall
from npuc.lower.fit import Choice, array_type, tried
from npuc.lower.library import Library
from npuc.schedule import OverflowRefused
from npuc.schedule.limits import Limits, ScheduleOptions, limits_of
from npuc.schedule.pipeline import schedule_within
from npuc.tasks import Buffer, Origin, Region, TaskGraph
from npuc.tasks.cost import program_job
from npuc.tile import ArrayType, Trace, TraceCache
from npukernels import registry
from npurt.target import Target
from npurt.timing import PS, simulate

TRIED = 3  # tile sizes of each form: candidates come with the most promising first
SEARCHED_BY = ("npuc.lower", "npuc.schedule", "npuc.tasks", "npuc.tile", "npukernels", "npurt")
FILLED = (0.0, 1.0)  # shares of the cache at which a call is timed: every cache fills from one end to the other

Types = tuple[ArrayType | None, ...]


@dataclass(frozen=True)
class FormCost:
    """One form with the best of its tile sizes. seconds: the mean over the fillings of the cache; None where no sizes
    fit or the form does not take such arrays."""

    form: str
    sizes: Mapping[str, Any]
    seconds: float | None


@dataclass
class FormChooser:
    """Chooses forms for one compilation. forced: the form to take wherever it can be; None: the fastest.

    answers: costs that earlier compilations have found; they are what would be found again.
    """

    library: Library
    target: Target
    forced: str | None = None
    answers: AnswerCache | None = None
    _known: dict[tuple[object, ...], float | None] = field(default_factory=dict)
    _costs: dict[tuple[object, ...], tuple[FormCost, ...]] = field(default_factory=dict)

    def choose(self, call: KernelCall, cache: TraceCache, free: int) -> Choice | None:
        """The choice for a call of a kernel that has forms, with at most `free` bytes of local buffers; None where none
        fits, and for every other call. Its `forms` are all costs, the chosen one first."""
        if call.kernel not in registry.FORMS or self.library.binding(call.kernel) is not None:
            return None
        types = tuple(None if region is None else array_type(region) for region in call.arrays)
        key = call.kernel, types, _static(call.params), free
        if key not in self._costs:
            self._costs[key] = self._answered(call, types, cache, free)
        costs = self._costs[key]
        if costs[0].seconds is None:
            return None
        name = registry.FORMS[call.kernel][costs[0].form]
        trace = registry.get(name).kernel.trace(types, {**call.params, **costs[0].sizes}, cache=cache)
        return Choice(costs[0].sizes, trace, name, call.arrays, costs)

    def _answered(self, call: KernelCall, types: Types, cache: TraceCache, free: int) -> tuple[FormCost, ...]:
        """All costs, the best first, from earlier compilations if they have been asked."""
        if self.answers is None:
            return self._search(call, types, cache, free)
        question = self._question(call, types, free)
        kept = self.answers.get(question)
        costs = None if kept is None else _costs_of(kept, registry.FORMS[call.kernel])
        if costs is None:
            costs = self._search(call, types, cache, free)
            self.answers.put(question, {"costs": [vars(cost) for cost in costs]})
        return costs

    def _question(self, call: KernelCall, types: Types, free: int) -> dict[str, Any]:
        names = registry.FORMS[call.kernel].values()
        first = [self.library.sizes(name, types, call.params) for name in names]
        return {
            "what": "form", "kernel": call.kernel, "types": [type_text(type_) for type_ in types],
            "params": plain_params(call.params), "free": free, "forced": self.forced, "target": self.target.digest,
            "first": [None if sizes is None else plain_params(sizes) for sizes in first],
            "sources": sources_digest(*SEARCHED_BY),
        }  # fmt: skip

    def _search(self, call: KernelCall, types: Types, cache: TraceCache, free: int) -> tuple[FormCost, ...]:
        """All costs, the best first."""
        known = registry.FORMS[call.kernel]
        found = [
            self._best(form, name, call, types, cache, free) for form, name in known.items() if form == self.forced
        ]
        if not any(cost.seconds is not None for cost in found):
            others = [(form, name) for form, name in known.items() if form != self.forced]
            found += [self._best(form, name, call, types, cache, free) for form, name in others]
        best = min(found, key=lambda cost: math.inf if cost.seconds is None else cost.seconds)
        return best, *(cost for cost in found if cost is not best)

    def _best(self, form: str, name: str, call: KernelCall, types: Types, cache: TraceCache, free: int) -> FormCost:
        best = FormCost(form, {}, None)
        for sizes, trace in islice(self._fitting(name, call, types, cache, free), TRIED):
            seconds = self._seconds(trace, {**call.params, **sizes}, free)
            if seconds is not None and (best.seconds is None or seconds < best.seconds):
                best = FormCost(form, sizes, seconds)
        return best

    def _fitting(
        self, name: str, call: KernelCall, types: Types, cache: TraceCache, free: int
    ) -> Iterator[tuple[Mapping[str, Any], Trace]]:
        """A form's tile sizes whose buffers fit, those that were chosen before first."""
        spec = registry.get(name)
        for sizes in tried(self.library.sizes(name, types, call.params), spec.candidates(types, call.params, free)):
            trace = spec.kernel.trace(types, {**call.params, **sizes}, cache=cache)
            if trace.plan().bytes <= free:
                yield sizes, trace

    def _seconds(self, trace: Trace, params: Mapping[str, Any], free: int) -> float | None:
        """Mean time of a call's tasks alone, None where they cannot be placed without spilling."""
        key = trace.kernel, trace.types, _static(params), free
        if key not in self._known:
            self._known[key] = _time(trace, _past(trace.types), self.target, free)
        return self._known[key]


def _static(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def _costs_of(kept: Mapping[str, Any], forms: Mapping[str, str]) -> tuple[FormCost, ...] | None:
    """The costs of an answer; None where it is none."""
    rows = kept.get("costs")
    if not isinstance(rows, list) or not rows:
        return None
    costs = []
    for row in rows:
        form, sizes, seconds = map(row.get, ("form", "sizes", "seconds")) if isinstance(row, dict) else (None,) * 3
        if not isinstance(form, str) or form not in forms or not isinstance(seconds, float | None):
            return None
        if not isinstance(sizes, dict) or not all(isinstance(size, int) for size in sizes.values()):
            return None
        costs.append(FormCost(form, sizes, seconds))
    return tuple(costs)


def _past(types: Types) -> int:
    """Slots of the cache that attention reads: its fourth array."""
    cache = types[3]
    return 0 if cache is None else cache.shape[1]


def _time(trace: Trace, past: int, target: Target, free: int) -> float | None:
    regions = [None if type_ is None else _region(number, type_) for number, type_ in enumerate(trace.types)]
    tasks = trace.instantiate(regions, Origin(kernel=trace.kernel), "form")
    rows = next(type_.shape[1] for type_ in trace.types if type_ is not None)
    limits = limits_of(target)
    room = {memory: _held(regions, memory) + free for memory in target.on_chip}
    try:
        program = schedule_within(TaskGraph("form", tasks, rows, past), _within(limits, room), ScheduleOptions())
    except OverflowRefused:
        return None
    if program.spills.nbytes:
        return None
    steps = dict.fromkeys(int(past * share) for share in FILLED)
    times = [simulate(program_job(program, target, {"n_past": n, "n_new": rows}), held=True) for n in steps]
    return sum(each.makespan for each in times) / len(times) / PS


def _region(number: int, type_: ArrayType) -> Region:
    """A buffer of its own for an array."""
    whole = Region(Buffer(f"array{number}", type_.memory, 0), 0, type_.dtype, type_.shape, type_.stride)
    low, high = whole.span
    return replace(whole, buffer=Buffer(f"array{number}", type_.memory, high - low), offset=-low)


def _held(regions: Sequence[Region | None], memory: str) -> int:
    """Bytes of the arrays that lie in a memory."""
    return sum(
        -(-r.buffer.nbytes // r.buffer.align) * r.buffer.align for r in regions if r and r.buffer.memory == memory
    )


def _within(limits: Limits, room: Mapping[str, int]) -> Limits:
    """Limits with less memory."""
    sizes = {memory: min(size, room.get(memory, size)) for memory, size in limits.memory_bytes.items()}
    return replace(limits, memory_bytes=sizes)


def form_lines(entry: str, choices: Sequence[tuple[KernelCall, Choice]]) -> list[str]:
    """For the report: of each different choice how often it was made, its sizes, and what the other forms cost."""
    counts: dict[str, int] = {}
    for _, choice in choices:
        if choice.forms:
            text = "; ".join(map(_cost_text, choice.forms))
            counts[text] = counts.get(text, 0) + 1
    return [f"{entry}: attention x {count}: {text}" for text, count in counts.items()]


def _cost_text(cost: FormCost) -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in cost.sizes.items())
    if cost.seconds is None:
        return f"{cost.form} does not fit"
    return f"{cost.form} {cost.seconds * 1e6:.0f} us ({sizes})"
