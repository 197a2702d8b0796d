"""Coordinate sets and formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.report.series import boxes, boxes_text, formula, parse_boxes
from npurt.errors import BlobError

coords = st.integers(1, 4).flatmap(
    lambda rank: st.lists(st.tuples(*[st.integers(0, 5)] * rank), min_size=1, max_size=40)
)


@given(coords)
def test_boxes_cover_exactly_and_without_overlap(found: list[tuple[int, ...]]) -> None:
    text = boxes_text(found)
    back = list(parse_boxes(text))
    assert len(back) == len(set(back)) and set(back) == set(found)
    assert boxes_text(reversed(found)) == text


def test_boxes_of_usual_sets() -> None:
    grid = [(i, j, 0) for i in range(3) for j in range(4)]
    assert boxes_text(grid) == "[0..2,0..3]"
    triangle = [(i, j, 0) for i in range(3) for j in range(i + 1)]
    assert boxes_text(triangle) == "[0,0] [1,0..1] [2,0..2]"
    assert boxes_text([(7, k) for k in range(3)]) == "[7]*0..2"
    assert boxes_text([(0,)]) == "[]"
    assert boxes([(0, 0), (2, 0)]) == [((0, 0), (0, 0)), ((2, 2), (0, 0))]


def test_text_that_is_no_set() -> None:
    with pytest.raises(BlobError, match=r"'0\.\.3' is no set of coordinates"):
        list(parse_boxes("0..3"))


@given(st.lists(st.integers(-(10**9), 10**9), min_size=3, max_size=3), st.integers(2, 5), st.integers(2, 5))
def test_a_formula_gives_the_numbers_back(factors: list[int], n: int, m: int) -> None:
    grid = np.array([(i, j) for i in range(n) for j in range(m)])
    values = factors[0] + grid @ np.array(factors[1:])
    text = formula(np.concatenate([grid, np.zeros((n * m, 1), int)], axis=1), values)
    for (i, j), value in zip(grid.tolist(), values.tolist(), strict=True):
        assert eval(text, {"c0": i, "c1": j}) == value


def test_formulas_of_usual_series() -> None:
    grid = np.array([(i, j, k) for i in range(2) for j in range(3) for k in range(2)])
    assert formula(grid, 64 + 256 * grid[:, 1] + 32 * grid[:, 2]) == "64+256*c1+32*k"
    assert formula(grid, 0 * grid[:, 0]) == "0"
    assert formula(grid, 8 - 2 * grid[:, 0]) == "8-2*c0"
    assert formula(grid, grid[:, 0] ** 2 + grid[:, 1] ** 2).startswith("{12 values ")
