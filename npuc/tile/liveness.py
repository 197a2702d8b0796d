"""Which operations of a trace matter, and where each value is used."""

from __future__ import annotations

from collections.abc import Sequence

from npuc.tile.trace import EndRun, Fill, FlagCondition, Mma, Recorded, Scatter, Store, TraceOp, Value, operands

Uses = dict[int, list[int]]


def live_operations(ops: Sequence[Recorded]) -> tuple[list[Recorded], Uses]:
    """The operations that stores, fills and accumulations need, and for each value id the positions that read it."""
    needed: set[int] = set()
    kept: list[Recorded] = []
    for recorded in reversed(ops):
        if _has_effect(recorded.op) or _result(recorded.op) in needed:
            needed.update(value.id for value in _read(recorded))
            kept.append(recorded)
    kept.reverse()
    uses: Uses = {}
    for position, recorded in enumerate(kept):
        for value in _read(recorded):
            uses.setdefault(value.id, []).append(position)
    return kept, uses


def _read(recorded: Recorded) -> list[Value]:
    """What an operation reads, and the flag that decides about it."""
    flag = [recorded.when.flag] if isinstance(recorded.when, FlagCondition) else []
    return [*operands(recorded.op), *flag]


def _has_effect(op: TraceOp) -> bool:
    return isinstance(op, (Store, Scatter, Fill, EndRun)) or (isinstance(op, Mma) and op.acc is not None)


def _result(op: TraceOp) -> int | None:
    return None if isinstance(op, (Store, Scatter, Fill, EndRun)) or op.out is None else op.out.id
