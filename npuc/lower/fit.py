"""Tile sizes: the first of a kernel's candidates, largest first, whose buffers fit into what is free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from npuc.lower.context import KernelCall
from npuc.tasks import Region
from npuc.tile import ArrayType, Trace, TraceCache
from npukernels import registry


@dataclass(frozen=True)
class Choice:
    """The tile sizes of one call and the trace they gave."""

    params: Mapping[str, Any]
    trace: Trace


def array_type(region: Region) -> ArrayType:
    return ArrayType(region.dtype, region.shape, region.stride, region.buffer.memory)


def choose(call: KernelCall, cache: TraceCache, free_bytes: int) -> Choice | None:
    """The choice for `call` with at most `free_bytes` of local buffers; None if even the smallest tiles need more."""
    spec = registry.get(call.kernel)
    types = [None if region is None else array_type(region) for region in call.arrays]
    for sizes in spec.candidates(types, call.params, free_bytes):
        params = {**call.params, **sizes}
        trace = spec.kernel.trace(types, params, cache=cache)
        if trace.plan().bytes <= free_bytes:
            return Choice(sizes, trace)
    return None
