"""Which columns of attention's scores exist at a step, and where they lie in a compact buffer.

The device has a column for each slot of the cache. At a step a mask hides all that lie beyond n_past, so that fast mode
computes the visible ones alone, side by side: work and memory follow the tokens, not the capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from npurt.fast.context import Array
from npurt.fast.ops import Amount


@dataclass(frozen=True)
class Piece:
    """A run of columns that one product gives. amount: how many of them, None for all; the others are zero."""

    first: int
    count: int
    amount: Amount | None


@dataclass
class Views:
    """One compact buffer at one step. rows [R, T]; shaped [..., T]; parts: [batch, m, width] of each piece."""

    rows: Array
    shaped: Array
    parts: list[Array]
    lows: Array
    tops: Array


class Columns:
    """Shared by all tasks with one mask and one way of cutting columns into pieces.

    mask: gives the visible columns, bool, broadcastable to `lead` + (columns,). batch, m: how products see the rows.
    """

    def __init__(
        self, mask: Callable[[], Array], pieces: Sequence[Piece], lead: tuple[int, ...], batch: tuple[int, int], step: list[int]
    ) -> None:
        self.pieces = list(pieces)
        self.span: list[tuple[int, int]] = [(0, 0)] * len(self.pieces)  # visible columns of each piece, from its first
        self.active = [0] * len(self.pieces)  # its columns that are computed
        self.hidden: Array | None = None
        self.blank = False
        self._mask, self._lead, self._batch, self._step = mask, lead, batch, step
        self._at: tuple[int, ...] = ()
        self._views: dict[int, Views] = {}

    @property
    def most(self) -> int:
        """Columns of the largest step."""
        return sum(piece.count for piece in self.pieces)

    def update(self) -> None:
        """Follows the step block; nothing where it is as before."""
        if self._at == tuple(self._step):
            return
        self._at = tuple(self._step)
        self._views.clear()
        mask = self._mask()
        columns = max(piece.first + piece.count for piece in self.pieces)
        mask = np.broadcast_to(mask, (*mask.shape[:-1], columns)) if mask.ndim else np.full((1, columns), bool(mask))
        seen = mask.reshape(-1, columns).any(axis=0)
        chosen = []
        for number, piece in enumerate(self.pieces):
            places = np.flatnonzero(seen[piece.first : piece.first + piece.count])
            low, high = (int(places[0]), int(places[-1]) + 1) if places.size else (0, 0)
            self.span[number] = low, high
            self.active[number] = piece.count if piece.amount is None else _count(piece.amount, self._step)
            chosen.append(mask[..., piece.first + low : piece.first + high])
        visible = np.concatenate(chosen, axis=-1)
        self.hidden = None if visible.all() else ~visible
        self.blank = bool((~visible.any(axis=-1)).any())

    def views(self, buffer: Array) -> Views:
        """The views of a compact buffer at this step."""
        found = self._views.get(id(buffer))
        if found is None:
            found = self._views[id(buffer)] = self._make(buffer)
        return found

    def _make(self, buffer: Array) -> Views:
        total = sum(high - low for low, high in self.span)
        height = self._batch[0] * self._batch[1]
        flat = buffer.reshape(-1)
        rows = flat[: height * total].reshape(height, total)
        whole = rows.reshape(*self._batch, total)
        parts, at = [], 0
        for low, high in self.span:
            parts.append(whole[:, :, at : at + high - low])
            at += high - low
        ends = flat[height * total :]
        return Views(rows, rows.reshape(*self._lead, total), parts, ends[:height].reshape(height, 1), ends[height : 2 * height].reshape(height, 1))


def _count(amount: Amount, step: Sequence[int]) -> int:
    return min(max(step[amount.step] + amount.plus, 0), amount.most)
