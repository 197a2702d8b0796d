"""Rules of when(): what is made or overwritten inside a block must not be relied on outside it."""

from __future__ import annotations

from collections.abc import Iterable

from npuc.tile.errors import KernelError, Loc
from npuc.tile.trace import AnyCondition, FlagCondition, Value


class Conditions:
    """Which block each tile was made in. Conditions are compared by identity: one object for each block."""

    def __init__(self) -> None:
        self._made: dict[int, AnyCondition] = {}

    def made(self, value: Value, now: AnyCondition | None) -> None:
        """A task of the present block computes `value`."""
        if now is not None:
            self._made[value.id] = now

    def shown(self, view: Value, source: Value) -> None:
        """`view` is the memory of `source` in another shape."""
        if source.id in self._made:
            self._made[view.id] = self._made[source.id]

    def check_use(self, value: Value, now: AnyCondition | None, loc: Loc) -> None:
        """KernelError where a tile is used outside the block that may not have computed it."""
        condition = self._made.get(value.id)
        if condition is not None and condition is not now:
            raise KernelError(
                f"this tile is made inside {_text(condition)} and used outside; "
                "store it in scratch inside the block and load that", loc,
            )  # fmt: skip

    def check_overwrite(self, now: AnyCondition | None, later: Iterable[AnyCondition | None], loc: Loc) -> None:
        """KernelError where a block overwrites memory whose old contents are used after it."""
        if now is not None and any(use is not now for use in later):
            raise KernelError(
                "this overwrites, inside when(), an array from which an earlier load is used after the block; "
                "load it again there", loc,
            )  # fmt: skip


def _text(condition: AnyCondition) -> str:
    """A condition as its author wrote it."""
    if isinstance(condition, FlagCondition):
        return "when(flag)" if condition.taken else "when(flag, taken=False)"
    return f"when({condition})"
