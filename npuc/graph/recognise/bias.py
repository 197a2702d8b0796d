"""Position biases of attention (ALiBi): a number per head times the distance of a column from a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.graph.recognise.probe import Columns, Point

_CLOSE = 1e-5
"""Largest error of a bias against slope * distance, as a share of the largest value: some roundings of float32."""


@dataclass(frozen=True)
class Bias:
    """A value [.., H, rows or 1, columns] that is slopes[h] * slot but for a number per row, which softmax cancels.

    lead: extents before the last two axes, H in all. slopes: f32 [H]. dtype: of the value. columns: the slots that have
    one. Proven for the columns up to each row's own; attention must hide the others.
    """

    lead: tuple[int, ...]
    slopes: np.ndarray
    dtype: np.dtype
    columns: Columns


def find_bias(results: Sequence[tuple[Point, np.ndarray]], columns: Columns) -> Bias | None:
    """The bias that explains every probe, or None. results: with a column for each of `columns`."""
    first = results[0][1]
    lead = first.shape[:-2]
    if first.dtype.kind != "f" or first.ndim < 3:
        return None
    if any(r.shape[:-2] != lead or r.shape[-2] not in (1, p.rows) for p, r in results):
        return None
    point, widest = max(results, key=lambda r: r[0].total)
    slopes = _slopes(widest.reshape(-1, *widest.shape[-2:])[:, -1], columns.of(point) < point.total)
    if slopes is None:
        return None
    for point, result in results:
        heads = result.reshape(-1, *result.shape[-2:]).astype(np.float64)
        slot = columns.of(point)
        row = point.n_past + np.arange(point.rows)[:, None]
        expected = slopes.astype(np.float64)[:, None, None] * (slot[None, :] - row)
        planes = np.broadcast_to(heads, expected.shape)
        own = np.argmax(slot[None, :] == row, axis=1)[None, :, None]
        level = planes - np.take_along_axis(planes, np.broadcast_to(own, (*planes.shape[:2], 1)), axis=2)
        limit = _CLOSE * max(float(np.abs(heads).max()), 1e-30)
        if not bool((np.abs(level - expected)[:, slot[None, :] <= row] <= limit).all()):
            return None
    return Bias(lead, slopes, first.dtype, columns)


def _slopes(rows: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """Slope of each head from one row [H, columns]: next to a zero the value itself, which no rounding has touched."""
    rows = rows[:, known].astype(np.float32)
    if rows.shape[1] < 2:
        return None
    zero = np.flatnonzero((rows == 0).all(axis=0))
    place = int(zero[0]) if zero.size else 0
    step = rows[:, place + 1] - rows[:, place] if place + 1 < rows.shape[1] else rows[:, place] - rows[:, place - 1]
    return np.asarray(step, np.float32)
