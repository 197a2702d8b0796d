"""The task template of one class of programs: tasks over slots, with numbers still affine in the program ids."""

from __future__ import annotations

from dataclasses import dataclass

from npuc.tasks.graph import Flag, TaskOp
from npuc.tile.affine import Affine, Condition
from npuc.tile.errors import Loc
from npuc.tile.views import View
from npurt.abi.dtypes import DType

IN, OUT, DPU, SHAVE = "dma.in", "dma.out", "dpu", "shave"  # out: every transfer whose source is on-chip


@dataclass(frozen=True, slots=True)
class LocalBuffer:
    """A buffer that each program has for itself. slot: its number in views."""

    slot: int
    name: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    memory: str
    loc: Loc


@dataclass(frozen=True, slots=True)
class TaskTemplate:
    """One task of every program of the class.

    op: final where nothing depends on the program; valid_add and scalars replace StepValue.add of a CopyOp and the "i"
    arguments of a CallOp (position, expression).
    """

    engine: str
    op: TaskOp
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    stage: str
    loc: Loc
    when: Condition | None
    valid_add: Affine | None = None
    scalars: tuple[tuple[int, Affine], ...] = ()
    flag: Flag | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """All tasks of one program, in trace order, and the buffers they use besides the kernel's arrays."""

    ranges: tuple[tuple[int, int], ...]
    tasks: tuple[TaskTemplate, ...]
    buffers: tuple[LocalBuffer, ...]
