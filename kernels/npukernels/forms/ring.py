"""Forms of the kernels over rings, and of rows that replace others."""

import numpy as np

from npuc import tile as t
from npukernels.forms.attention import attention_of
from npukernels.forms.form import FLOATS, TILE, Form, Values

HEADS, GROUPS, DEPTH, RING, N_PAST = 4, 2, 16, 20, 33
WIDTH = 20


def _slots(dtype: t.DType, n: int) -> t.Example:
    valid = max(n - 2, 1)
    expected = np.where(np.arange(n) < valid, (np.arange(n) + N_PAST) % RING, -1)
    return t.Example((t.dense(t.i32, (n,)),), {"ring": RING}, lambda: expected, step={"n_past": N_PAST, "n_new": valid})


def _rows(dtype: t.DType, n: int) -> t.Example:
    slots = np.where(np.arange(n) < max(n - 2, 1), (np.arange(n) + 17) % RING, -1).astype(np.int32)
    ring = np.zeros((RING, 3, DEPTH), dtype.storage)

    def reference(new: Values, slots: Values) -> Values:
        out = np.zeros((RING, 3, DEPTH))
        for row, slot in zip(new, slots, strict=True):
            if slot >= 0:
                out[int(slot)] = row
        return out

    return t.Example((t.dense(dtype, (n, 3, DEPTH)), slots, ring), {"bg": 2}, reference)


def _attention(dtype: t.DType, n: int) -> t.Example:
    window = 6
    new, past = t.dense(dtype, (GROUPS, n, DEPTH)), t.dense(dtype, (GROUPS, RING, DEPTH))
    query = t.dense(dtype, (HEADS, n, DEPTH))

    def reference(q: Values, k_new: Values, v_new: Values, k_past: Values, v_past: Values) -> Values:
        order = np.arange(N_PAST - RING, N_PAST) % RING  # of the last tokens, the oldest first
        k, v = (np.concatenate([p[:, order], a], 1) for p, a in ((k_past, k_new), (v_past, v_new)))
        return attention_of(q, k, v, RING, scale=0.25, window=window)

    return t.Example(
        (query, new, new, past, past, query),
        {"scale": 0.25, "window": window, "ring": RING, "groups": 1, "bm": TILE, "bk": TILE},
        reference, step={"n_past": N_PAST, "n_new": n}, tolerance=2.0**-7 if dtype is t.f16 else None,
    )  # fmt: skip


def _scatter(words: str, reduction: str) -> Form:
    def make(dtype: t.DType, n: int) -> t.Example:
        ids = np.array([0, n - 1, 0], np.int32)

        def reference(x: Values, ids: Values, updates: Values) -> Values:
            out = x.copy()
            for row, update in zip(ids, updates, strict=True):
                out[int(row)] = update if reduction == "none" else out[int(row)] + update
            return out

        array, updates = t.dense(dtype, (n, WIDTH)), t.dense(dtype, (3, WIDTH))
        sizes = {"reduction": reduction, "bn": TILE, "bw": 16}
        return t.Example((array, ids, updates, array), sizes, reference)

    return Form("scatter_rows", words, FLOATS, make)


FORMS = (
    Form("ring_slots", "rows of the step's tokens in a ring", (t.i32,), _slots),
    Form("ring_rows", "new rows of a ring", FLOATS, _rows),
    Form("attention_ring", "over a ring, window", (t.f16, t.f32), _attention),
    _scatter("rows by number take others' place", "none"),
    _scatter("rows by number are added to", "add"),
)
