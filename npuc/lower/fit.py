"""Tile sizes: the first of a kernel's candidates, largest first, whose buffers fit into what is free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuc.lower.context import KernelCall
from npuc.lower.library import Library
from npuc.tasks import Region
from npuc.tile import ArrayType, Plan, Trace, TraceCache

if TYPE_CHECKING:
    from npuc.lower.forms import FormCost

STREAMED = 3  # tiles of a stream that shall fit beside each other: one loads, one computes, one is stored


@dataclass(frozen=True)
class Choice:
    """The tile sizes of one call and the trace they gave.

    kernel: its name; arrays: those it was traced for. forms: of a kernel that has forms their costs, the chosen one
    first.
    """

    params: Mapping[str, Any]
    trace: Trace
    kernel: str
    arrays: tuple[Region | None, ...]
    forms: tuple[FormCost, ...] = ()


def array_type(region: Region) -> ArrayType:
    return ArrayType(region.dtype, region.shape, region.stride, region.buffer.memory)


def choose(call: KernelCall, cache: TraceCache, free_bytes: int, library: Library) -> Choice | None:
    """The choice for `call` with at most `free_bytes` of local buffers; None if even the smallest tiles need more.

    Linear layers stream their weights: their tiles take a third of what is free at first, so that the next tile loads
    while one computes, and all of it only where nothing smaller exists. Errors: BindingError where the caller's kernel
    cannot take the call.
    """
    spec = library.spec(call.kernel)
    arrays, fixed = library.fitted(call.kernel, call.arrays, call.params)
    types = [None if region is None else array_type(region) for region in arrays]
    name = call.kernel if library.binding(call.kernel) is None else spec.name
    budgets = (free_bytes // STREAMED, free_bytes) if spec.family == "linear" else (free_bytes,)
    for budget in budgets:
        for sizes in tried(library.sizes(spec.name, types, fixed), spec.candidates(types, fixed, budget)):
            trace = spec.kernel.trace(types, {**fixed, **sizes}, cache=cache)
            if trace.plan().bytes <= budget:
                return Choice(sizes, trace, name, tuple(arrays))
    return None


def smallest_plan(call: KernelCall, cache: TraceCache, library: Library) -> Plan:
    """What the last of the candidates needs. Errors: as `choose`."""
    spec = library.spec(call.kernel)
    arrays, fixed = library.fitted(call.kernel, call.arrays, call.params)
    types = [None if region is None else array_type(region) for region in arrays]
    plans = [
        spec.kernel.trace(types, {**fixed, **sizes}, cache=cache).plan()
        for sizes in spec.candidates(types, fixed, None)
    ]
    return min(plans, key=lambda plan: plan.bytes)


def tried(first: Mapping[str, Any] | None, others: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The sizes that were chosen before, if any, then the candidates."""
    if first is not None:
        yield first
    yield from others
