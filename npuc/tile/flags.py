"""Where the flag of a when() block lies while the tasks of the block look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuc.tasks import CopyOp
from npuc.tile.template import OUT
from npuc.tile.trace import FlagCondition, Gather, Load, touched
from npuc.tile.views import View

if TYPE_CHECKING:
    from npuc.tile.lower import Lowering


def place(low: Lowering, condition: FlagCondition) -> View:
    """The flag in memory; a copy of its own where the block writes the array that it is read from.

    The flag counts as it is when the block is reached, and every task of the block reads it for itself.
    """
    loc = low.ops[low.position].op.loc
    home = low.settle(condition.flag, loc)
    if condition.flag.id not in low.arrays or not _written(low, condition, home):
        return home
    copy = low.buffer("flag", home.dtype, home.shape, loc)
    low.emit(OUT, CopyOp(), (home,), (copy,), "copy flag", loc)
    return copy


def _written(low: Lowering, condition: FlagCondition, home: View) -> bool:
    for recorded in low.ops[low.position :]:
        if recorded.when is not condition:
            return False
        memory = touched(recorded.op)
        if memory is not None and not isinstance(recorded.op, (Load, Gather)) and low.view(memory).meets(home):
            return True
    return False
