"""Meanings of step-only values: every class, and the nearest reason where none fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuc.graph.recognise.classify import Constant, Mask, Meaning, Table, Unrecognised, classify, visible_columns
from npuc.graph.recognise.probe import Point

POINTS = [Point(*pair) for pair in ((0, 3), (7, 3), (5, 4), (6, 1), (20, 8))]
LOW = np.float32(-3.4e38)


def meaning(function: Callable[[Point], np.ndarray], points: list[Point] | None = None, limit: int = 64) -> Meaning:
    return classify(function, points or POINTS, 40, limit)


def seen(point: Point, window: int = 0) -> np.ndarray:
    """bool [rows, columns] with the columns of `point.hidden` left out."""
    plane = visible_columns(point, True, window)
    plane[:, list(point.hidden)] = False
    return plane


def test_constant_may_depend_on_the_rows() -> None:
    assert meaning(lambda p: np.arange(p.rows)) == Constant()


def test_table_has_the_rows_of_all_positions() -> None:
    found = meaning(lambda p: (np.arange(p.n_past, p.total) ** 2)[None, :, None] * np.ones((1, 1, 5)))
    assert isinstance(found, Table)
    assert (found.axis, found.table.shape) == (1, (40, 1, 5))
    assert np.array_equal(found.table[:, 0, 0], np.arange(40) ** 2)


def test_table_beyond_the_limit_repeats_its_last_row() -> None:
    found = meaning(lambda p: np.arange(p.n_past, p.total)[:, None], POINTS[:4], limit=30)
    assert isinstance(found, Table)
    assert found.table[28:33, 0].tolist() == [28, 29, 29, 29, 29]


def test_table_of_a_graph_with_fixed_rows_is_joined_from_its_runs() -> None:
    found = meaning(lambda p: np.arange(p.n_past, p.total)[None], [Point(n, 1) for n in (0, 5, 9)])
    assert isinstance(found, Table)
    assert found.table[:, 0].tolist() == list(range(40))


@pytest.mark.parametrize("window", [0, 5])
def test_additive_mask(window: int) -> None:
    found = meaning(lambda p: np.where(seen(p, window), np.float32(0), LOW)[None, None])
    assert found == Mask(4, True, True, window, np.float32(0), LOW, True)


def test_boolean_mask_whose_true_hides() -> None:
    found = meaning(lambda p: ~seen(p))
    assert isinstance(found, Mask)
    assert (found.causal, bool(found.visible), bool(found.hidden)) == (True, False, True)


def test_doubled_mask_reaches_minus_infinity() -> None:
    def doubled(p: Point) -> np.ndarray:
        mask = np.where(seen(p), np.float32(0), LOW)
        with np.errstate(over="ignore"):
            mask[:, 0] += mask[:, 0]
        return mask

    assert isinstance(meaning(doubled), Mask)


def test_mask_that_only_hides_padding() -> None:
    def columns(p: Point) -> np.ndarray:
        mask = np.ones((1, 1, 1, p.total), bool)
        mask[..., list(p.hidden)] = False
        return mask

    found = meaning(columns)
    assert isinstance(found, Mask)
    assert (found.causal, found.rows, found.padding) == (False, False, True)


def test_mask_of_one_row_graphs_counts_as_causal() -> None:
    found = meaning(lambda p: np.ones((1, 1, 1, p.total), bool), [Point(n, 1) for n in (0, 5, 9)])
    assert isinstance(found, Mask)
    assert (found.causal, found.padding) == (True, False)


def test_window_larger_than_the_small_probes_is_seen_at_real_size() -> None:
    found = meaning(lambda p: seen(p, 20))
    assert isinstance(found, Mask)
    assert found.window == 20


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda p: np.where(seen(p), -0.5 * np.arange(p.total), LOW), "more than two different values"),
        (lambda p: np.stack([np.arange(p.total) * s for s in (1.0, 0.5)])[None, :, None], "differs from head to head"),
        (lambda p: np.arange(p.total)[None, :] % 2 == (p.total - 1) % 2, "neither causal nor a sliding window"),
        (lambda p: np.full((1, 7), p.n_past), "no axis of it has the length of the new rows"),
        (lambda p: np.full((p.rows, 2), p.n_past), "a row depends on more than its position"),
        (lambda p: np.zeros((p.n_past, 3)), "neither that of a table of positions nor that of a mask"),
    ],
    ids=["alibi", "heads", "stripes", "scalar", "rows", "shape"],
)
def test_reasons(function: Callable[[Point], np.ndarray], reason: str) -> None:
    with pytest.raises(Unrecognised, match=reason):
        meaning(function)
