"""Stamps a task template over the grid: fresh buffers, regions and numbers for every program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from npuc.tasks import Buffer, CallOp, CopyOp, Origin, Region, StepValue, Task, When
from npuc.tasks.graph import TaskOp
from npuc.tile.affine import Affine
from npuc.tile.template import TaskTemplate, Template
from npuc.tile.views import View

Pids = tuple[int, ...]


def stamp(
    templates: Sequence[Template], grid: tuple[int, ...], regions: Sequence[Region | None], origin: Origin, prefix: str
) -> list[Task]:
    """The tasks of all programs, the last grid axis fastest."""
    prepared = [_Prepared.of(template, regions) for template in templates]
    of_program: dict[Pids, _Prepared] = {}
    for template, ready in zip(templates, prepared, strict=True):
        for pids in product(*(range(first, last + 1) for first, last in template.ranges)):
            of_program[pids] = ready
    tasks: list[Task] = []
    for pids in product(*map(range, grid)):
        of_program[pids].stamp(pids, origin, prefix, tasks)
    return tasks


@dataclass(frozen=True, slots=True)
class _Operand:
    """A view whose array is known. base: the array's region start; buffer is None for a local buffer."""

    slot: int
    buffer: Buffer | None
    base: int
    terms: tuple[tuple[int, int], ...]
    view: View

    def region(self, pids: Pids, local: Sequence[Buffer], arrays: int) -> Region:
        offset = self.base
        for axis, coefficient in self.terms:
            offset += coefficient * pids[axis]
        buffer = self.buffer if self.buffer is not None else local[self.slot - arrays]
        return Region(buffer, offset, self.view.dtype, self.view.shape, self.view.stride)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A template bound to the kernel's arrays."""

    template: Template
    arrays: int
    operands: tuple[tuple[tuple[_Operand, ...], tuple[_Operand, ...]], ...]
    ops: tuple[Callable[[Pids], TaskOp] | None, ...]

    @staticmethod
    def of(template: Template, regions: Sequence[Region | None]) -> _Prepared:
        operands = tuple(
            (tuple(_operand(v, regions) for v in task.reads), tuple(_operand(v, regions) for v in task.writes))
            for task in template.tasks
        )
        return _Prepared(template, len(regions), operands, tuple(map(_op_maker, template.tasks)))

    def stamp(self, pids: Pids, origin: Origin, prefix: str, tasks: list[Task]) -> None:
        where = f"{prefix}[{','.join(map(str, pids))}]" if pids else prefix
        local = [
            Buffer(f"{where}.{buffer.name}", buffer.memory, buffer.nbytes, where=buffer.loc.short)
            for buffer in self.template.buffers
        ]
        for task, (reads, writes), make in zip(self.template.tasks, self.operands, self.ops, strict=True):
            tasks.append(
                Task(
                    task.engine,
                    task.op if make is None else make(pids),
                    tuple([operand.region(pids, local, self.arrays) for operand in reads]),
                    tuple([operand.region(pids, local, self.arrays) for operand in writes]),
                    Origin(origin.entry, origin.node, origin.kernel, (*origin.coord, *pids), task.stage),
                    None if task.when is None else When(task.when.field, task.when.above.at(pids)),
                )
            )


def _operand(view: View, regions: Sequence[Region | None]) -> _Operand:
    terms = tuple((term, c) for term, c in view.offset.terms if isinstance(term, int))
    region = regions[view.slot] if view.slot < len(regions) else None
    base = view.offset.const + (0 if region is None else region.offset)
    return _Operand(view.slot, None if region is None else region.buffer, base, terms, view)


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
