"""Tasks of one layer as those of another: what they are like, and the same with other constants and states."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, Set
from copy import copy
from dataclasses import fields, replace
from typing import Any

import numpy as np

from npurt.fast.codes import Codes
from npurt.fast.ops import Call, Convert, Copy, Exact, Fill, Gather, Mma, Op, Scatter
from npurt.fast.refs import Ref
from npurt.image import TaskRef
from npurt.shave.program import Program

_OWN = ("task", "known")  # of each task, whatever it does
_LOST = object()
_FIELDS: dict[type[Op], tuple[str, ...]] = {
    kind: tuple(each.name for each in fields(kind) if each.name not in _OWN)
    for kind in (Copy, Fill, Gather, Scatter, Mma, Call, Exact, Convert)
}

_VIEWS: dict[type[Op], tuple[str, ...]] = {
    Copy: ("src", "dst"), Fill: ("dst",), Gather: ("src", "index", "dst"), Scatter: ("src", "index", "dst"),
    Mma: ("a", "b", "c", "table", "codes"), Call: ("args",), Exact: ("read", "written"), Convert: ("src", "dst"),
}  # fmt: skip


def plain(op: Op, constant: int, states: Set[int]) -> Hashable:
    """Equal for tasks that differ in nothing but the places of constants and the numbers of states."""

    def of(value: Any) -> Hashable:
        if isinstance(value, Ref):
            if value.base == constant:
                return "constant", value.plane, value.dtype, value.shape, value.stride
            if value.base in states:
                return "state", value.plane, value.dtype, value.offset, value.shape, value.stride
        elif isinstance(value, Codes):
            return replace(value, scales=None), of(value.scales)
        elif isinstance(value, list):
            return tuple(map(of, value))
        elif isinstance(value, set):
            return frozenset(value)
        elif isinstance(value, Program):
            return id(value)  # parsed once, and slow to compare
        known: Hashable = value
        return known

    return type(op).__name__, op.task.table, *(of(getattr(op, name)) for name in _names(op))


def refs_of(op: Op) -> list[Ref]:
    """All views of a task, in an order that is the same for tasks that are alike."""
    return list(_refs(op))


class Moves:
    """From the views of some neighbouring stretches to those of others, which are alike, stretch by stretch.

    A task may use what its neighbours have loaded for it, so that their views count, too.
    """

    def __init__(
        self, known: Sequence[Sequence[Ref]], others: Sequence[Sequence[Ref]], constant: int, states: Set[int]
    ) -> None:
        self._constant, self._states = constant, states
        pairs = [pair for mine, other in zip(known, others, strict=True) for pair in zip(mine, other, strict=True)]
        moved = [(*mine.hull, other.offset - mine.offset) for mine, other in pairs if mine.base == constant]
        self._low, self._high, self._by = np.array(sorted(set(moved)), np.int64).reshape(-1, 3).T
        self._bases: dict[int, set[int]] = {}
        for mine, other in pairs:
            if mine.base in states:
                self._bases.setdefault(mine.base, set()).add(other.base)

    def of(self, ref: Ref, others: bool = False) -> Ref | None:
        """The view that stands for one; None where that cannot be told. others: a view of nothing that is known stays
        as it is."""
        if ref.base == self._constant:
            low, high = ref.hull
            touched = (self._low < high) & (self._high > low)
            if not touched.any():
                return ref if others else None
            by = self._by[touched]
            inside = self._low[touched].min() <= low and self._high[touched].max() >= high
            return ref.moved(ref.offset + int(by[0])) if inside and (by == by[0]).all() else None
        if ref.base in self._states:
            bases = self._bases.get(ref.base)
            if bases is None:
                return ref if others else None
            return replace(ref, base=next(iter(bases))) if len(bases) == 1 else None
        return ref

    def keeps(self, ref: Ref) -> bool:
        """Whether a view stays as it is."""
        return self.of(ref, others=True) == ref


def stamped(op: Op, task: TaskRef, moves: Moves, others: bool = False) -> Op | None:
    """The task with its views moved, in the place of `task`; None where that cannot be told. others: as in `Moves`."""
    made = copy(op)
    for name in _names(op):
        moved = _moved(getattr(op, name), moves, others)
        if moved is _LOST:
            return None
        setattr(made, name, moved)
    made.task = task
    made.changed()
    return made


def _moved(value: object, moves: Moves, others: bool) -> object:
    """A field's value in another stretch, _LOST where that cannot be told."""
    if isinstance(value, Ref):
        return moves.of(value, others) or _LOST
    if isinstance(value, Codes) and value.scales is not None:
        scales = moves.of(value.scales, others)
        return replace(value, scales=scales) if scales is not None else _LOST
    if isinstance(value, list):
        each = [_moved(one, moves, others) for one in value]
        return _LOST if any(one is _LOST for one in each) else each
    return set(value) if isinstance(value, set) else value


def _refs(op: Op) -> Iterator[Ref]:
    for name in _VIEWS[type(op)]:
        value = getattr(op, name)
        if isinstance(value, Ref):
            yield value
        elif isinstance(value, list):
            yield from (each for each in value if isinstance(each, Ref))
        elif isinstance(value, Codes) and value.scales is not None:
            yield value.scales


def _names(op: Op) -> tuple[str, ...]:
    return _FIELDS[type(op)]
