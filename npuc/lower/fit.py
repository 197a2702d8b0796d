"""Tile sizes: the first of a kernel's candidates, largest first, whose buffers fit into what is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuc.lower.context import KernelCall
from npuc.tasks import Region
from npuc.tile import ArrayType, Trace, TraceCache
from npukernels import registry

STREAMED = 3  # tiles of a stream that shall fit beside each other: one loads, one computes, one is stored


@dataclass(frozen=True)
class Choice:
    """The tile sizes of one call and the trace they gave."""

    params: Mapping[str, Any]
    trace: Trace


def array_type(region: Region) -> ArrayType:
    return ArrayType(region.dtype, region.shape, region.stride, region.buffer.memory)


def choose(call: KernelCall, cache: TraceCache, free_bytes: int) -> Choice | None:
    """The choice for `call` with at most `free_bytes` of local buffers; None if even the smallest tiles need more.

    Linear layers stream their weights: their tiles take a third of what is free at first, so that the next tile loads
    while one computes, and all of it only where nothing smaller exists.
    """
    spec = registry.get(call.kernel)
    types = [None if region is None else array_type(region) for region in call.arrays]
    budgets = (free_bytes // STREAMED, free_bytes) if spec.family == "linear" else (free_bytes,)
    for budget in budgets:
        for sizes in spec.candidates(types, call.params, budget):
            trace = spec.kernel.trace(types, {**call.params, **sizes}, cache=cache)
            if trace.plan().bytes <= budget:
                return Choice(sizes, trace)
    return None
