"""The tasks of one program while they are made: each under a stage name of its own and the condition it stands in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from npuc.tasks.graph import Flag, TaskOp
from npuc.tile.affine import Affine, Condition
from npuc.tile.errors import Loc
from npuc.tile.template import TaskTemplate
from npuc.tile.trace import AnyCondition
from npuc.tile.views import View


class TaskList:
    """tasks: in trace order. flag: where the flag of the present condition lies, None for any other condition."""

    def __init__(self) -> None:
        self.tasks: list[TaskTemplate] = []
        self.flag: View | None = None
        self._stages: Counter[str] = Counter()

    def number(self, stage: str) -> int:
        """Tasks of this stage so far."""
        return self._stages[stage]

    def add(
        self, engine: str, op: TaskOp, reads: Sequence[View], writes: Sequence[View], stage: str, loc: Loc,
        when: AnyCondition | None, valid_add: Affine | None, scalars: tuple[tuple[int, Affine], ...],
    ) -> None:  # fmt: skip
        """A task under the condition `when`. A flag is one more of its reads."""
        number = self._stages[stage]
        self._stages[stage] += 1
        key = f"{stage}#{number}" if number else stage
        flag = None
        if self.flag is not None and when is not None and not isinstance(when, Condition):
            flag, reads = Flag((len(reads),), when.taken), (*reads, self.flag)
        step = when if isinstance(when, Condition) else None
        self.tasks.append(
            TaskTemplate(engine, op, tuple(reads), tuple(writes), key, loc, step, valid_add, scalars, flag)
        )
