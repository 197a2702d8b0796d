"""Meanings of step-only values: every class, and the nearest reason where none fits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from npuc.graph.recognise.bias import Bias
from npuc.graph.recognise.classify import Constant, Mask, Meaning, Table, Unrecognised, classify, visible_columns
from npuc.graph.recognise.probe import Columns, Point

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


SLOPES = np.array([0.5, 0.3, -0.0625], np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda p: SLOPES[:, None, None] * np.arange(p.total, dtype=np.float32),  # the same for every row
        lambda p: SLOPES[None, :, None, None] * (np.arange(p.total) - np.arange(p.n_past, p.total)[:, None]),
        lambda p: -SLOPES[:, None, None] * np.abs(np.arange(p.total) - np.arange(p.n_past, p.total)[:, None]) * 1.0,
        lambda p: SLOPES[:, None, None] * (np.arange(p.total, dtype=np.float32) - 5) + np.float32(3),
    ],
    ids=["slots", "distances", "symmetric", "shifted"],
)
def test_a_number_per_head_times_the_distance_is_a_bias(function: Callable[[Point], np.ndarray]) -> None:
    found = meaning(lambda p: function(p).astype(np.float32))
    assert isinstance(found, Bias)
    sign = 1 if found.slopes[0] > 0 else -1
    np.testing.assert_allclose(sign * found.slopes, SLOPES, rtol=2e-6)


def test_the_second_of_two_heads_is_no_bias() -> None:
    def bent(p: Point) -> np.ndarray:
        return np.stack([np.arange(p.total), np.minimum(np.arange(p.total), 12)])[:, None].astype(np.float32)

    with pytest.raises(Unrecognised, match="differs from head to head"):
        meaning(bent)


@pytest.mark.parametrize("kept", [4, 30])
def test_mask_of_caches_that_drop_old_rows(kept: int) -> None:
    columns = Columns(kept=kept)
    shown = classify(lambda p: visible_columns(p, True, 5, columns), POINTS, 40, 64, [Columns(), columns])
    assert isinstance(shown, Mask)
    assert (shown.causal, shown.window) == (True, 5)
    assert shown.columns == (columns if kept == 4 else Columns())


@pytest.mark.parametrize("window", [0, 5])
def test_mask_over_the_slots_of_a_fixed_cache(window: int) -> None:
    columns = Columns(slots=40)
    shown = classify(lambda p: visible_columns(p, True, window, columns)[None], POINTS, 40, 40, [Columns(), columns])
    assert isinstance(shown, Mask)
    assert (shown.causal, shown.window, shown.columns) == (True, window, columns)


def test_a_table_as_wide_as_a_fixed_cache_is_no_mask() -> None:
    found = classify(
        lambda p: np.cos(np.arange(p.n_past, p.total)[:, None] * np.arange(40)), POINTS, 40, 40, [Columns(slots=40)]
    )
    assert isinstance(found, Table)


def test_the_last_rows_of_a_table_whose_length_is_no_multiple_of_the_rows() -> None:
    found = classify(lambda p: np.arange(p.n_past, p.total)[:, None], [Point(n, 3) for n in (0, 5, 7)], 10, 10)
    assert isinstance(found, Table)
    assert found.table[:, 0].tolist() == list(range(10))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda p: np.where(seen(p), -0.5 * np.arange(p.total), LOW), "more than two different values"),
        (lambda p: np.stack([np.arange(p.total) ** s for s in (1.0, 0.5)])[None, :, None], "differs from head to head"),
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
