"""What of a task follows the step block: predicates, counts and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npurt.abi.records import Step
from npurt.fast.refs import Ref

Steps = Mapping[Step, int]


@dataclass(frozen=True, slots=True)
class Predicate:
    """True where the step field is above the value and, where `most` is given, not above that."""

    step: Step
    above: int
    most: int | None = None


@dataclass(frozen=True, slots=True)
class FlagPredicate:
    """True where the int32 at `flag` is other than 0 (is 0: not nonzero).

    version: number of writes to the flag before; equal predicates read one value.
    """

    flag: Ref
    nonzero: bool
    version: int


@dataclass(frozen=True, slots=True)
class Amount:
    """A count that follows the step block: min(max(step + plus, 0), most)."""

    step: Step
    plus: int
    most: int


@dataclass(frozen=True, slots=True)
class Shift:
    """An offset that follows the step block: `stride` bytes for each unit. most: the field's largest value."""

    step: Step
    stride: int
    most: int
