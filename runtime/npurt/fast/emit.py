"""The calls of every kind of task, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from npurt.abi.records import Step
from npurt.exec.dma import prepare_dma
from npurt.exec.dpu import Workspace, prepare_dpu
from npurt.exec.shave import prepare_shave
from npurt.fast.attention import Groups
from npurt.fast.context import Call, Context
from npurt.fast.dag import Dag, build
from npurt.fast.memory import RawBases
from npurt.fast.moves import convert_calls, copy_calls, fill_calls, gather_calls, scatter_calls
from npurt.fast.ops import Call as Vector
from npurt.fast.ops import Convert, Copy, Exact, Fill, Gather, Mma, Op, Scatter
from npurt.fast.products import product_calls
from npurt.fast.steps import FlagPredicate, Predicate
from npurt.fast.vector import vector_calls
from npurt.image import Image
from npurt.relocate import apply_steps
from npurt.shave.machine import Prepared, prepare

_ANY = 2**31 - 1  # no step field, an int32, is larger


class Emitter:
    """Makes the calls of tasks on one device's memory."""

    def __init__(self, image: Image, context: Context) -> None:
        self._image, self._context = image, context
        self._dags: dict[tuple[int, frozenset[int]], Dag] = {}
        self._programs: list[Prepared] = []
        self._bases, self._workspace = RawBases(context.memory), Workspace()

    def emit(self, ops: Sequence[Op], groups: Groups | None) -> list[Call]:
        """The calls of tasks in their order. groups: tasks that have other calls than their kind's."""
        calls: list[Call] = []
        for op in ops:
            made = groups.calls(op) if groups is not None else None
            if made is None:
                made = self._calls(op)
            calls += made if op.pred is None else [self._guard(op.pred, made)]
        return calls

    def _guard(self, pred: Predicate | FlagPredicate, calls: list[Call]) -> Call:
        if isinstance(pred, FlagPredicate):
            return _flagged, (self._context.memory.view(pred.flag), pred.nonzero, calls)
        most = _ANY if pred.most is None else pred.most
        return _guarded, (self._context.step, pred.step, pred.above, most, calls)

    def _calls(self, op: Op) -> list[Call]:
        context = self._context
        if isinstance(op, Copy):
            return copy_calls(op, context)
        if isinstance(op, Mma):
            return product_calls(op, context)
        if isinstance(op, Vector):
            return vector_calls(op, self._dag(op), context)
        if isinstance(op, Gather):
            return gather_calls(op, context)
        if isinstance(op, Scatter):
            return scatter_calls(op, context)
        if isinstance(op, Fill):
            return fill_calls(op, context)
        if isinstance(op, Convert):
            return convert_calls(op, context)
        assert isinstance(op, Exact)
        return [(self._exact(op), ())]

    def _dag(self, op: Vector) -> Dag:
        key = id(op.program), frozenset(op.dead)
        if key not in self._dags:
            self._dags[key] = build(op.program, op.dead)
        return self._dags[key]

    def _exact(self, op: Exact) -> Callable[[], None]:
        """The call of exact mode, on the bytes."""
        tables, row = self._image.tables, op.task.row
        if op.task.table == "dpu":
            return prepare_dpu(tables.dpu[row], self._bases, self._workspace)
        if op.task.table == "shave":
            if not self._programs:
                self._programs += [prepare(program) for program in tables.programs]
            return prepare_shave(tables.shave[row], tables, self._programs, self._bases)
        patches = [patch for patch in self._image.steps if patch.row == row]
        if not patches:
            return prepare_dma(tables.dma[row], self._bases)

        def stepped() -> None:
            records = tables.dma[row : row + 1].copy()
            apply_steps(records, patches, row, {field: self._context.step[field] for field in Step})
            prepare_dma(records[0], self._bases)()

        return stepped


def _flagged(flag: np.ndarray, nonzero: bool, calls: list[Call]) -> None:
    if (flag[()] != 0) == nonzero:
        for function, arguments in calls:
            function(*arguments)


def _guarded(step: list[int], field: int, above: int, most: int, calls: list[Call]) -> None:
    if above < step[field] <= most:
        for function, arguments in calls:
            function(*arguments)
