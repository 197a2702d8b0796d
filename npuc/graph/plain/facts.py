"""What is known of a value that has an axis of cache slots, some of which no token has filled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuc.graph.recognise.classify import MASKED_BELOW


@dataclass(frozen=True)
class Held:
    """What a value holds at every unfilled slot: numbers from `low` to `high`; truth is 1.

    Where these are not known: finite numbers, as large as a model computes with, or, not `finite`, NaN as well. Zero
    means of integer codes the code of zero.
    """

    low: float | None = None
    high: float | None = None
    finite: bool = True

    @property
    def lowest(self) -> bool:
        """Numbers that softmax drops."""
        return self.high is not None and self.high <= MASKED_BELOW

    @property
    def usable(self) -> bool:
        """Finite numbers that a sum may meet without being drowned."""
        return self.finite and not self.lowest

    def __str__(self) -> str:
        if self.low is None:
            return "finite numbers" if self.finite else "anything, NaN included"
        return f"{self.low:g}" if self.low == self.high else f"numbers from {self.low:g} to {self.high:g}"


ZERO, ONE = Held(0.0, 0.0), Held(1.0, 1.0)
FINITE, ANY = Held(), Held(finite=False)
TRUE, FALSE = ONE, ZERO


@dataclass(frozen=True)
class Layout:
    """Which columns of an axis are slots: `count` from column `start` on, the first of them slot `first`.

    Slots are those of the past, then the new rows. Other columns of the axis hold what the model has put there.
    """

    start: int
    first: int
    count: int


@dataclass(frozen=True)
class Slots:
    """A value with slots along `axis`."""

    axis: int
    layout: Layout
    held: Held


@dataclass(frozen=True)
class Lost:
    """An axis that can no longer be followed, and why."""

    reason: str


def held_by(array: np.ndarray) -> Held:
    """What is known of all elements of an array."""
    if not array.size or array.dtype.kind not in "fiub" or bool((np.isnan(array) | np.isposinf(array)).any()):
        return ANY
    return Held(float(array.min()), float(array.max()))
