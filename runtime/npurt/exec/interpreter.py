"""The one interpreter: walks an entry's tasks in order and tells its hooks.

What a task does to memory is itself a hook (`Values`), so that a run for timing or checks needs no data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from npurt.abi.records import FLAGS, PREDICATE_FIELDS, RANGES, Predicate, Step
from npurt.exec.memory import Bases
from npurt.image import Entry, Tables, TaskRef


class Hook(Protocol):
    """Sees every task. active: its predicate holds; a task that is not active still waits and posts."""

    def on_start(self, task: TaskRef, active: bool) -> None: ...

    def on_finish(self, task: TaskRef, active: bool) -> None: ...


class Values:
    """Computes. calls: for each task by `TaskRef.index`; a task reads and writes memory when it finishes."""

    def __init__(self, calls: Sequence[Callable[[], None]]) -> None:
        self._calls = calls

    def on_start(self, task: TaskRef, active: bool) -> None:
        """Nothing: an engine's reads and writes count as one moment."""

    def on_finish(self, task: TaskRef, active: bool) -> None:
        if active:
            self._calls[task.index]()


class Actives:
    """A hook that notes which tasks of a run have acted: `active` [tasks] by `TaskRef.index`."""

    def __init__(self, entry: Entry) -> None:
        self.active = np.ones(len(entry.tasks), np.bool_)

    def on_start(self, task: TaskRef, active: bool) -> None:
        self.active[task.index] = active

    def on_finish(self, task: TaskRef, active: bool) -> None:
        """Nothing: a predicate is read at the start."""


StepRange = tuple[Step, int, int | None]
"""A step field, the value that it must exceed, and the largest that it may have, None where any will do."""


def predicated(entry: Entry, tables: Tables) -> dict[int, StepRange]:
    """The step predicate of each task that has one, by index."""
    found: dict[int, StepRange] = {}
    for task in entry.tasks:
        record = getattr(tables, task.table)[task.row]
        code, above = Predicate(int(record["pred"])), int(record["pred_value"])
        if code in PREDICATE_FIELDS:
            most = above + int(record["pred_base"]) if code in RANGES else None
            found[task.index] = PREDICATE_FIELDS[code], above, most
    return found


Flags = Mapping[int, tuple[np.ndarray, bool]]
"""Of each task with a device predicate, by index: the int32 in memory, and whether it must be other than 0."""


def flagged(entry: Entry, tables: Tables, bases: Bases) -> Flags:
    """The flags of an entry's tasks on the memory behind `bases`."""
    found = {}
    for task in entry.tasks:
        record = getattr(tables, task.table)[task.row]
        if record["pred"] in FLAGS:
            memory, offset = bases(int(record["pred_base"]), int(record["pred_value"]))
            flag: np.ndarray = np.ndarray((), np.dtype("<i4"), memory, offset)
            found[task.index] = flag, record["pred"] == Predicate.FLAG_NZ
    return found


def run(
    tasks: Sequence[TaskRef],
    predicates: Mapping[int, StepRange],
    flags: Flags,
    step: Mapping[Step, int],
    hooks: Sequence[Hook],
) -> None:
    """Runs tasks in the given order. predicates: as `predicated` gives them; flags: as `flagged` does; step: the values
    of the step block."""
    skipped = {
        index
        for index, (field, above, most) in predicates.items()
        if step[field] <= above or (most is not None and step[field] > most)
    }
    with np.errstate(all="ignore"):
        for task in tasks:
            active = task.index not in skipped
            if task.index in flags:
                flag, set_ = flags[task.index]
                active = (flag[()] != 0) == set_
            for hook in hooks:
                hook.on_start(task, active)
            for hook in hooks:
                hook.on_finish(task, active)
