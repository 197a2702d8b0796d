"""A target with one number changed, for sensitivity tables and for checks of the timing model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from npurt.errors import TargetError
from npurt.target.model import Target

T = TypeVar("T")
_FIELDS = (
    "rate", "latency", "issue", "launch", "clock", "operand_rate", "fill_rate", "bytes_per_cycle", "bank_rate",
    "instruction_latency",
)  # fmt: skip
_TABLES = ("macs_per_cycle", "cycles")


def scaled(target: Target, key: str, factor: float) -> Target:
    """The target with one rate, time or weight multiplied. key: as in `Target.figures`, of a route, pool, engine, sync.

    An engine's clock counts for its arithmetic alone: what the file says in cycles is in seconds by now.
    Errors: TargetError where the key names no number that costs time.
    """
    group, _, rest = key.partition(".")
    name, _, field = rest.rpartition(".")
    head, _, table = name.rpartition(".")
    if key not in target.figures or key == "sync.clock" or not (field in _FIELDS or table in _TABLES):
        raise TargetError(f"{target.name}: no number {key!r} that costs time")
    if group == "sync":
        return replace(target, sync=_times(target.sync, field, factor))
    rows: dict[Any, Any] = dict(getattr(target, group))
    changes: dict[str, Any] = {group: rows}
    if table in _TABLES:
        old: Mapping[str, float] = getattr(rows[head], table)
        rows[head] = replace(rows[head], **{table: {**old, field: old[field] * factor}})
    else:
        place: Any = tuple(name.split("->")) if group == "routes" else name
        rows[place] = _times(rows[place], field, factor)
    return replace(target, **changes)


def _times(row: T, field: str, factor: float) -> T:
    return replace(row, **{field: getattr(row, field) * factor})  # type: ignore[type-var]
