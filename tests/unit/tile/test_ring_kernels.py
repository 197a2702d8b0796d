"""Kernels of rings, against the formula over whole histories."""

from __future__ import annotations

import numpy as np
import pytest

from npukernels.ring import attention_ring, ring_rows, ring_slots

GROUPS, SHARE, SIZE = 2, 2, 8
RANDOM = np.random.default_rng(4)
KEYS, VALUES = (RANDOM.normal(size=(24, GROUPS, SIZE)).astype(np.float32) for _ in range(2))


@pytest.mark.parametrize(
    ("n_past", "n_new", "slots"),
    [(0, 3, [0, 1, 2]), (3, 2, [3, 0, -1]), (5, 3, [1, 2, 3]), (9, 1, [1, -1, -1]), (4, 0, [-1, -1, -1])],
)
def test_slots(n_past, n_new, slots):
    out = np.zeros(3, np.int32)
    ring_slots.eager(out, ring=4, step={"n_past": n_past, "n_new": n_new})
    assert out.tolist() == slots


def written(n_past: int, ring: int, history: np.ndarray) -> np.ndarray:
    """A ring [ring, G, D] after n_past tokens, one by one; rows that none has filled are NaN."""
    held = np.full((ring, *history.shape[1:]), np.nan, np.float32)
    for token in range(n_past):
        held[token % ring] = history[token]
    return held


@pytest.mark.parametrize(("n_past", "n_new"), [(0, 5), (3, 5), (7, 2), (10, 3)])
def test_rows_go_to_their_slots(n_past, n_new):
    """Five rows into four slots: of two tokens with one slot the later stays, rows past n_new go nowhere."""
    held, slots = written(n_past, 4, KEYS), np.zeros(5, np.int32)
    ring_slots.eager(slots, ring=4, step={"n_past": n_past, "n_new": n_new})
    ring_rows.eager(np.ascontiguousarray(KEYS[n_past : n_past + 5]), slots, held, bg=1)
    np.testing.assert_array_equal(held, written(n_past + n_new, 4, KEYS))


def attended(query: np.ndarray, n_past: int, window: int, slopes: np.ndarray, sinks: np.ndarray) -> np.ndarray:
    """The formula in float64, row by row over the tokens that the window shows."""
    out = np.zeros(query.shape)
    for h, i in np.ndindex(query.shape[:2]):
        position = n_past + i
        tokens = np.arange(max(0, position - window + 1), position + 1)
        scores = KEYS[tokens, h // SHARE].astype(np.float64) @ query[h, i] * 0.3 + slopes[h] * (tokens - position)
        weights = np.exp(scores)
        out[h, i] = weights @ VALUES[tokens, h // SHARE] / (weights.sum() + np.exp(sinks[h]))
    return out


@pytest.mark.parametrize(("rows", "bm", "groups", "bk"), [(3, 1, 1, 4), (3, 3, 2, 2), (1, 1, 1, 2), (1, 1, 2, 4)])
@pytest.mark.parametrize("n_past", [0, 1, 3, 4, 5, 8, 11, 19])
def test_attention_over_a_ring(n_past, rows, bm, groups, bk):
    """Before the first turn, on its edge and long behind it. A row sees its own token and the four before."""
    query = RANDOM.normal(size=(GROUPS * SHARE, rows, SIZE)).astype(np.float32)
    slopes, sinks = (RANDOM.normal(size=GROUPS * SHARE).astype(np.float32) for _ in range(2))
    new = [np.ascontiguousarray(x[n_past : n_past + rows].swapaxes(0, 1)) for x in (KEYS, VALUES)]
    past = [np.ascontiguousarray(written(n_past, 4, x).swapaxes(0, 1)) for x in (KEYS, VALUES)]
    out = np.zeros_like(query)
    attention_ring.eager(
        query, *new, *past, out, slopes, sinks, scale=0.3, window=5, ring=4, bm=bm, groups=groups, bk=bk,
        step={"n_past": n_past, "n_new": rows},
    )  # fmt: skip
    np.testing.assert_allclose(out, attended(query, n_past, 5, slopes, sinks), rtol=1e-4, atol=1e-5)
