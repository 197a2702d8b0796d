"""The bound: the largest of what the memory, each engine, the chain of launches and the narrow places cost at least.

Every part holds for any tile sizes, order and placement on this target. Ratios to it cannot be improved by smaller
tiles, as ratios to a program's own sums can.
"""

from __future__ import annotations

from typing import Any

from npuc.bound.canonical import Bound, Canonical
from npuc.graph.entry import EntryGraph
from npurt.abi.dtypes import DType
from npurt.target.model import Target


def bound_of(
    entry: EntryGraph, target: Target, *, floats: DType, n_past: int | None = None, held: bool = True
) -> Bound:
    """floats: how floats are stored. n_past: None for full caches. held: a port stands still for a latency.

    Errors: TargetError where the target multiplies no such floats.
    """
    return Canonical.of(entry, floats).bound(target, n_past=n_past, held=held)


def bound_record(entry: EntryGraph, target: Target, floats: DType) -> dict[str, Any]:
    """The JSON object for a blob's metadata: microseconds of each part in both readings of the DMA latency, and the
    bytes, at full caches; and `canonical`, from which the bound follows for anything else."""
    canonical = Canonical.of(entry, floats)
    readings = {name: canonical.bound(target, held=name == "held") for name in ("held", "overlapped")}
    first = readings["held"]
    return {
        "n_past": first.n_past,
        "ddr_bytes": first.loaded + first.stored,
        "parts_us": {
            name: {part: round(seconds * 1e6, 3) for part, seconds in bound.parts.items()}
            for name, bound in readings.items()
        },
        "canonical": canonical.to_json(),
    }
