"""What would fit where a kernel does not: for each size among its parameters the largest smaller one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuc.tile.errors import KernelError
from npuc.tile.kernel import Kernel, TraceCache
from npuc.tile.types import ArrayType

MOST_TRIES = 24  # of one parameter: it is divided by 2, 3, 4, ...


def smaller_sizes(
    kernel: Kernel, types: Sequence[ArrayType | None], params: Mapping[str, Any], free: int
) -> dict[str, int]:
    """The integer parameters that alone, made smaller, let one program's buffers fit into `free` bytes, with the
    largest such value of the form size / n, rounded up.
    """
    cache, found = TraceCache(), {}
    for name, value in params.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 2:
            continue
        tried = dict.fromkeys(-(-value // parts) for parts in range(2, MOST_TRIES + 2))
        fitting = (size for size in tried if _fits(kernel, types, {**params, name: size}, free, cache))
        size = next(fitting, None)
        if size is not None:
            found[name] = size
    return found


def _fits(
    kernel: Kernel, types: Sequence[ArrayType | None], params: Mapping[str, Any], free: int, cache: TraceCache
) -> bool:
    try:
        return kernel.trace(types, params, cache=cache).plan().bytes <= free
    except KernelError:  # not every number is a size that the kernel can take
        return False


def smaller_text(found: Mapping[str, int], params: Mapping[str, Any]) -> str:
    """One line for a message; empty where nothing is known to fit."""
    if not found:
        return ""
    changes = " or ".join(f"{name}={size} instead of {params[name]}" for name, size in found.items())
    return f"it fits with {changes}"
