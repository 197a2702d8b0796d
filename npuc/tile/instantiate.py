"""Stamps task templates over the grid: fresh buffers, regions and numbers for every program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from npuc.tasks import Buffer, CallOp, CopyOp, Origin, Region, StepValue, Task, When
from npuc.tasks.graph import TaskOp
from npuc.tile.affine import Affine, Condition
from npuc.tile.template import TaskTemplate, Template
from npuc.tile.views import View
from npurt.abi.dtypes import DType

Pids = tuple[int, ...]
Place = tuple[Buffer, int]  # a buffer and the byte in it where an array starts


@dataclass(frozen=True, slots=True)
class _Operand:
    """A view with its offset split: const and (grid axis, bytes) for each program id that moves it."""

    slot: int
    const: int
    terms: tuple[tuple[int, int], ...]
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @staticmethod
    def of(view: View) -> _Operand:
        terms = tuple((term, c) for term, c in view.offset.terms if isinstance(term, int))
        return _Operand(view.slot, view.offset.const, terms, view.dtype, view.shape, view.stride)

    def region(self, pids: Pids, places: Sequence[Place]) -> Region:
        buffer, offset = places[self.slot]
        offset += self.const
        for axis, coefficient in self.terms:
            offset += coefficient * pids[axis]
        return Region(buffer, offset, self.dtype, self.shape, self.stride)


@dataclass(frozen=True, slots=True)
class _Stamp:
    """A task template ready to be repeated. op: how to make the operation for one program, None if all share it."""

    task: TaskTemplate
    reads: tuple[_Operand, ...]
    writes: tuple[_Operand, ...]
    op: Callable[[Pids], TaskOp] | None

    def make(self, pids: Pids, places: Sequence[Place], origin: Origin) -> Task:
        task = self.task
        return Task(
            task.engine,
            task.op if self.op is None else self.op(pids),
            tuple([operand.region(pids, places) for operand in self.reads]),
            tuple([operand.region(pids, places) for operand in self.writes]),
            Origin(origin.entry, origin.node, origin.kernel, origin.coord + pids, task.stage),
            None if task.when is None else _when(task.when, pids),
            task.flag,
        )


def _when(condition: Condition, pids: Pids) -> When:
    above = -1 if condition.above is None else condition.above.at(pids)  # no step field is negative
    return When(condition.field, above, None if condition.most is None else condition.most.at(pids))


class Stamper:
    """Templates of one kernel, prepared once, stamped for any arrays of the traced types."""

    def __init__(self, templates: Sequence[Template], grid: tuple[int, ...]) -> None:
        self._grid = grid
        self._classes = [(template, [_stamp(task) for task in template.tasks]) for template in templates]

    def tasks(self, regions: Sequence[Region | None], origin: Origin, prefix: str) -> list[Task]:
        """The tasks of all programs, the last grid axis fastest."""
        unused = Buffer(f"{prefix}.absent", "", 0)  # stands for optional arrays, which no task can touch
        arrays = [(unused, 0) if region is None else (region.buffer, region.offset) for region in regions]
        of_program = {
            pids: number
            for number, (template, _) in enumerate(self._classes)
            for pids in product(*(range(first, last + 1) for first, last in template.ranges))
        }
        tasks: list[Task] = []
        for pids in product(*map(range, self._grid)):
            template, stamps = self._classes[of_program[pids]]
            where = f"{prefix}[{','.join(map(str, pids))}]" if pids else prefix
            local = [(Buffer(f"{where}.{b.name}", b.memory, b.nbytes, where=b.loc.short), 0) for b in template.buffers]
            places = arrays + local
            tasks += [stamp.make(pids, places, origin) for stamp in stamps]
        return tasks


def _stamp(task: TaskTemplate) -> _Stamp:
    return _Stamp(task, tuple(map(_Operand.of, task.reads)), tuple(map(_Operand.of, task.writes)), _op_maker(task))


def _op_maker(task: TaskTemplate) -> Callable[[Pids], TaskOp] | None:
    """How to make the operation for one program; None where it is the same for all."""
    op = task.op
    if isinstance(op, CopyOp) and task.valid_add is not None and op.valid is not None:
        field, add = op.valid.field, task.valid_add
        return lambda pids: replace(op, valid=StepValue(field, add.at(pids)))
    if isinstance(op, CallOp) and task.scalars:
        scalars: Mapping[int, Affine] = dict(task.scalars)

        def call(pids: Pids) -> TaskOp:
            args = ((k, scalars[i].at(pids) if i in scalars else value) for i, (k, value) in enumerate(op.args))
            return CallOp(op.name, op.code, tuple(args))

        return call
    return None
