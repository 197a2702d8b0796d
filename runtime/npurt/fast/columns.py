"""Which columns of attention's scores exist at a step, and where they lie in a compact buffer.

The device has a column for each slot of the cache. At a step a mask hides all that lie beyond n_past, so that fast mode
computes the visible ones alone, side by side: work and memory follow the tokens, not the capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npurt.fast.context import Array
from npurt.fast.steps import Amount


@dataclass(frozen=True)
class Part:
    """Rows and columns of one product: `batch` x `m` rows from `row`, and the piece of columns by number."""

    row: int
    batch: int
    m: int
    piece: int


@dataclass(frozen=True)
class Piece:
    """A run of columns that one product gives. amount: how many of them, None for all; the others are zero."""

    first: int
    count: int
    amount: Amount | None


class Views:
    """One compact buffer at one step. rows [R, T]; shaped [..., T]; tops, totals [R, 1]: for each row."""

    def __init__(self, buffer: Array, lead: tuple[int, ...], spans: Sequence[tuple[int, int]]) -> None:
        widths = [high - low for low, high in spans]
        height, total = prod(lead), sum(widths)
        self.rows = buffer[: height * total].reshape(height, total)
        self.shaped = self.rows.reshape(*lead, total)
        ends = buffer[height * total :]
        self.tops, self.totals = ends[:height].reshape(height, 1), ends[height : 2 * height].reshape(height, 1)
        self._starts = [sum(widths[:number]) for number in range(len(widths) + 1)]
        self._parts: dict[Part, Array] = {}

    def part(self, part: Part) -> Array:
        """The view [batch, m, width] of what one product gives or takes."""
        found = self._parts.get(part)
        if found is None:
            rows = self.rows[part.row : part.row + part.batch * part.m].reshape(part.batch, part.m, -1)
            found = rows[:, :, self._starts[part.piece] : self._starts[part.piece + 1]]
            self._parts[part] = found
        return found


class Columns:
    """Shared by all tasks with one mask and one way of cutting columns into pieces.

    mask: gives the visible columns, bool, broadcastable to `lead` + (columns,).
    """

    def __init__(
        self, mask: Callable[[], Array], pieces: Sequence[Piece], lead: tuple[int, ...], step: list[int]
    ) -> None:
        self.pieces = list(pieces)
        self.span: list[tuple[int, int]] = [(0, 0)] * len(self.pieces)  # visible columns of each piece, from its first
        self.active = [0] * len(self.pieces)  # its columns that are computed
        self.hidden: Array | None = None
        self.blank = False
        self._mask, self._lead, self._step = mask, lead, step
        self._at: tuple[int, ...] = ()
        self._views: dict[int, Views] = {}

    @property
    def words(self) -> int:
        """Size of a compact buffer, float32."""
        return prod(self._lead) * (sum(piece.count for piece in self.pieces) + 2)

    def update(self) -> None:
        """Follows the step block; nothing where it is as before."""
        if self._at == tuple(self._step):
            return
        self._at = tuple(self._step)
        self._views.clear()
        mask = self._mask()
        columns = max(piece.first + piece.count for piece in self.pieces)
        mask = np.broadcast_to(mask, (*mask.shape[:-1], columns)) if mask.ndim else np.full((1, columns), bool(mask))
        seen: Array = np.any(mask.reshape(-1, columns), axis=0)
        chosen = []
        for number, piece in enumerate(self.pieces):
            places = np.flatnonzero(seen[piece.first : piece.first + piece.count])
            low, high = (int(places[0]), int(places[-1]) + 1) if places.size else (0, 0)
            self.span[number] = low, high
            self.active[number] = piece.count if piece.amount is None else _count(piece.amount, self._step)
            chosen.append(mask[..., piece.first + low : piece.first + high])
        visible = np.concatenate(chosen, axis=-1)
        self.hidden = None if visible.all() else np.logical_not(visible)
        self.blank = not bool(np.all(visible.any(axis=-1)))

    def views(self, buffer: Array) -> Views:
        """The views of a compact buffer at this step."""
        found = self._views.get(id(buffer))
        if found is None:
            found = self._views[id(buffer)] = Views(buffer, self._lead, self.span)
        return found


def _count(amount: Amount, step: Sequence[int]) -> int:
    return min(max(step[amount.step] + amount.plus, 0), amount.most)
