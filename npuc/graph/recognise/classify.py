"""What a step-only value is: a constant, a table with a row per position, or a mask. Proven on all probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.graph.recognise.bias import Bias, find_bias
from npuc.graph.recognise.probe import ALL, Columns, Point

Evaluate = Callable[[Point], np.ndarray]

_SMALL_PROBE = 16

MASKED_BELOW = -1e4
"""An additive mask value at or below this hides a column: exp of it is 0 in every format the scores may have."""


@dataclass(frozen=True)
class Constant:
    """The same content for every n_past; it may depend on the number of rows."""


@dataclass(frozen=True)
class Table:
    """Row i of the value is table[n_past + i]. axis: of the rows in the value. table: [positions, ...others].

    kept: None, or the number of tokens up to which all runs agree on the rows. A longer run has other rows from its
    first on; the table then has for each later position what a run that ends with it gives.
    """

    axis: int
    table: np.ndarray
    kept: int | None = None


@dataclass(frozen=True)
class Mask:
    """A value per (row, column): `visible` where the row may see the column, else `hidden`.

    rank: of the value. rows: whether it has an axis of rows (else one row serves all). causal: row i sees the past and
    the new rows up to i; without it every column is visible. window: columns a row sees, itself included, 0 for all.
    padding: whether a zero in the attention mask hides its column. columns: the slots that have one.
    """

    rank: int
    rows: bool
    causal: bool
    window: int
    visible: np.generic
    hidden: np.generic
    padding: bool
    columns: Columns = ALL


Meaning = Constant | Table | Mask | Bias


class Unrecognised(Exception):
    """No class fits; the message says why the nearest one does not."""


def classify(
    evaluate: Evaluate,
    points: Sequence[Point],
    table_rows: int,
    limit: int,
    layouts: Sequence[Columns] = (ALL,),
) -> Meaning:
    """The meaning of a step-only value.

    points: small probes first, then the real sizes. table_rows: rows that a position table must have. limit: positions
    that the model can be asked for; rows of a table beyond it repeat the last one. layouts: columns that a mask may
    have. Raises Unrecognised.
    """
    results = [(point, evaluate(point)) for point in points]
    if _same_for_equal_rows(results):
        return Constant()
    for columns in layouts:
        if all(result.ndim and result.shape[-1] == len(columns.of(point)) for point, result in results):
            try:
                return _mask(results, evaluate, columns)
            except Unrecognised:
                bias = find_bias(results, columns)
                if bias is not None:
                    return bias
                if columns.slots is None:
                    raise  # else as many channels as slots may be a chance
    if _shapes_follow_rows_alone(results):
        return _table(results, evaluate, table_rows, limit)
    shapes = "; ".join(f"n_past {p.n_past}, rows {p.rows}: {list(r.shape)}" for p, r in results[:3])
    raise Unrecognised(f"its shape is neither that of a table of positions nor that of a mask ({shapes})")


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))


def _same_for_equal_rows(results: list[tuple[Point, np.ndarray]]) -> bool:
    first: dict[int, np.ndarray] = {}
    return all(_equal(first.setdefault(point.rows, result), result) for point, result in results)


def _shapes_follow_rows_alone(results: list[tuple[Point, np.ndarray]]) -> bool:
    first: dict[int, tuple[int, ...]] = {}
    return all(first.setdefault(point.rows, result.shape) == result.shape for point, result in results)


def _row_axis(results: list[tuple[Point, np.ndarray]]) -> int:
    for axis in range(results[0][1].ndim):
        if all(result.shape[axis] == point.rows for point, result in results):
            return axis
    raise Unrecognised("it changes with n_past, and no axis of it has the length of the new rows")


def _table(results: list[tuple[Point, np.ndarray]], evaluate: Evaluate, table_rows: int, limit: int) -> Table:
    axis = _row_axis(results)
    known = min(table_rows, limit)
    fixed = len({point.rows for point, _ in results}) == 1
    step = results[0][0].rows if fixed else known
    pieces = [np.moveaxis(evaluate(Point(start, step)), axis, 0) for start in range(0, known - step + 1, step)]
    rest = known % step
    if rest and known > step:
        pieces.append(np.moveaxis(evaluate(Point(known - step, step)), axis, 0)[-rest:])
    table, kept = np.concatenate(pieces), None
    if not fixed and not _explains(results, axis, table, table, known):
        kept = _turn(evaluate, axis, known)
        before = np.moveaxis(evaluate(Point(0, kept)), axis, 0)
        if not _explains(results, axis, before, table, kept):
            raise Unrecognised(_differs(results, axis, table))
        table = np.concatenate([before, table[kept:]])
    elif not _explains(results, axis, table, table, known):
        raise Unrecognised(_differs(results, axis, table))
    if len(table) < table_rows:
        table = np.concatenate([table, np.repeat(table[-1:], table_rows - len(table), axis=0)])
    return Table(axis, np.ascontiguousarray(table), kept)


def _explains(
    results: list[tuple[Point, np.ndarray]], axis: int, before: np.ndarray, beyond: np.ndarray, kept: int
) -> bool:
    """Whether every probe has the rows of `before`, or of `beyond` where it has more than `kept` tokens in all."""
    return all(
        _equal(np.moveaxis(result, axis, 0), (before if point.total <= kept else beyond)[point.n_past : point.total])
        for point, result in results
        if point.total <= len(beyond)
    )


def _turn(evaluate: Evaluate, axis: int, known: int) -> int:
    """The most tokens of a run whose first two rows are those of the shortest run that has both."""
    first = np.moveaxis(evaluate(Point(0, 2)), axis, 0)
    good, bad = 2, known
    while bad - good > 1:
        middle = (good + bad) // 2
        same = _equal(np.moveaxis(evaluate(Point(0, middle)), axis, 0)[:2], first)
        good, bad = (middle, bad) if same else (good, middle)
    return good


def _differs(results: list[tuple[Point, np.ndarray]], axis: int, table: np.ndarray) -> str:
    """Why no table fits, by the first probe that has other rows."""
    point = next(
        p for p, r in results
        if p.total <= len(table) and not _equal(np.moveaxis(r, axis, 0), table[p.n_past : p.total])
    )  # fmt: skip
    return (
        f"with n_past {point.n_past} and {point.rows} rows its rows differ from those of the same positions computed "
        "at once: a row depends on more than its position"
    )


def visible_columns(point: Point, causal: bool, window: int, columns: Columns = ALL) -> np.ndarray:
    """bool [rows, columns]: what a row may see."""
    row = point.n_past + np.arange(point.rows)[:, None]
    column = columns.of(point)[None, :]
    seen = (column <= row) if causal else np.broadcast_to(column < point.total, (point.rows, column.size))
    return seen & (column > row - window) if window else seen


def _mask(results: list[tuple[Point, np.ndarray]], evaluate: Evaluate, columns: Columns) -> Mask:
    rank = results[0][1].ndim
    has_rows = rank > 1 and all(result.shape[-2] == point.rows for point, result in results)
    planes = [(point, _plane(result, point.rows, has_rows)) for point, result in results]
    padded = _padded_plane(results, evaluate, has_rows)
    first = planes[0][0]
    own = int(np.flatnonzero(columns.of(first) == first.total - 1)[0])
    visible, hidden = _two_values(planes[0][1][-1, own], [plane for _, plane in planes], padded[1])
    patterns = [(point, plane == visible) for point, plane in planes]
    causal, window = _pattern(patterns, columns)
    if columns.circular and causal and columns.slots is not None:
        window = window or columns.slots  # older tokens have lost their slots
    point, plane = padded
    expected = visible_columns(point, causal, window, columns) & ~np.isin(columns.of(point), point.hidden)
    return Mask(rank, has_rows, causal, window, visible, hidden, _equal(plane == visible, expected), columns)


def _plane(result: np.ndarray, rows: int, has_rows: bool) -> np.ndarray:
    """The [rows, columns] that all leading axes share; one row that serves all is repeated."""
    flat = result.reshape(-1, rows if has_rows else 1, result.shape[-1])
    if not all(_equal(flat[0], plane) for plane in flat[1:]):
        raise Unrecognised(
            "it has a column per token, but differs from head to head, and is no number per head times the distance "
            "(the position bias ALiBi)"
        )
    return np.broadcast_to(flat[0], (rows, result.shape[-1]))


def _padded_plane(
    results: list[tuple[Point, np.ndarray]], evaluate: Evaluate, has_rows: bool
) -> tuple[Point, np.ndarray]:
    """A small probe with a zero in the attention mask at its last past column."""
    n_past, rows = max((point.n_past, point.rows) for point, _ in results if point.total <= _SMALL_PROBE)
    point = Point(n_past, rows, hidden=(n_past - 1,))
    return point, _plane(evaluate(point), rows, has_rows)


def _two_values(visible: np.generic, planes: list[np.ndarray], padded: np.ndarray) -> tuple[np.generic, np.generic]:
    """The value of a visible and of a hidden column. visible: of a row's own column, which it always sees."""
    if planes[0].dtype == np.bool_:
        return visible, np.logical_not(visible)
    others = np.concatenate([plane[plane != visible] for plane in planes])
    if others.size == 0:
        others = padded[padded != visible]
    if others.size == 0:
        return visible, np.finfo(np.float32).min.astype(planes[0].dtype)
    if bool((others == others[0]).all()):
        return visible, others[0]
    if visible == 0 and bool((others <= MASKED_BELOW).all()):
        return visible, others.min()
    raise Unrecognised(
        "it has a column per token and more than two different values: no mask of visible and hidden columns, and no "
        "number per head times the distance (the position bias ALiBi)"
    )


def _pattern(patterns: list[tuple[Point, np.ndarray]], columns: Columns) -> tuple[bool, int]:
    """(causal, window) that explains every plane."""
    window = _window(patterns)
    for causal, size in ((True, 0), (True, window), (False, 0)):
        if all(_equal(seen, visible_columns(point, causal, size, columns)) for point, seen in patterns):
            return causal, size
    point, seen = next((p, s) for p, s in patterns if not _equal(s, visible_columns(p, True, window, columns)))
    rows = "; ".join("".join("x" if cell else "." for cell in row[-24:]) for row in seen[:4])
    raise Unrecognised(
        f"it has a column per token, but is neither causal nor a sliding window (tried {window}) with "
        f"n_past {point.n_past} and {point.rows} rows: {rows}"
    )


def _window(patterns: list[tuple[Point, np.ndarray]]) -> int:
    """Columns that the last row of the longest plane sees, or 0 if it sees all."""
    point, seen = max(patterns, key=lambda r: r[0].total)
    count = int(seen[-1].sum())
    return count if count < point.total else 0
