"""Forms of attention over past and new rows, with one reference for all of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuc import tile as t
from npukernels.forms.form import FLOATS, TILE, Form, Values

HEADS, GROUPS, DEPTH, CAPACITY = 4, 2, 16, 24
N_PAST = 13
DTYPES = (t.f16, t.f32)


def attention_of(
    q: Values, k: Values, v: Values, n_past: int, *, scale: float, softcap: float = 0.0, window: int = 0,
    slopes: Values = None, sinks: Values = None,
) -> Values:  # fmt: skip
    """[H, C, Dv] of q [H, C, D], k and v [G, n_past + C, ..]: row i is at position n_past + i."""
    heads, rows, _ = q.shape
    share = heads // k.shape[0]
    scores = scale * np.einsum("hcd,hnd->hcn", q, k.repeat(share, 0))
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    distance = np.arange(k.shape[1])[None, :] - (n_past + np.arange(rows))[:, None]
    if slopes is not None:
        scores = scores + slopes[:, None, None] * distance
    seen = (distance <= 0) & ((distance > -window) if window else True)
    scores = np.where(seen, scores, -np.inf)
    if sinks is not None:
        scores = np.concatenate([scores, np.broadcast_to(sinks[:, None, None], (heads, rows, 1))], 2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hcn,hnd->hcd", weights[:, :, : k.shape[1]], v.repeat(share, 0))


def sizes_of(kernel: str, rows: int | None) -> dict[str, int]:
    """Tile sizes for the arrays of these forms. rows: of the query, None: several blocks."""
    groups = 1 if rows is None else GROUPS
    return {
        "attention": {"bm": TILE, "groups": groups, "bk": TILE},
        "attention_flash": {"groups": GROUPS, "batch": groups, "bm": 2 * TILE, "br": TILE, "bk": TILE},
        "attention_incremental": {"groups": GROUPS, "part": 2 * TILE, "bk": TILE},
    }[kernel]


def _form(words: str, kernel: str = "attention", rows: int | None = None, numbers: str = "", **params: Any) -> Form:
    """rows: of the query, None: the size that is asked for. numbers: "slopes" or "sinks"."""

    def make(dtype: t.DType, size: int) -> t.Example:
        count = size if rows is None else rows
        capacity = CAPACITY if rows is None else size + N_PAST
        new, past = t.dense(dtype, (GROUPS, count, DEPTH)), t.dense(dtype, (GROUPS, capacity, DEPTH))
        query = t.dense(dtype, (HEADS, count, DEPTH))
        per_head = np.linspace(0.1, 0.4, HEADS, dtype=np.float32) if numbers else None
        extra = {"": (), "slopes": (per_head,), "sinks": (None, per_head)}[numbers]
        static: Mapping[str, Any] = {"scale": 0.25, **params}

        def reference(q: Values, *arrays: Values) -> Values:
            # the kernel's order of reading is that of its arguments
            k_new, v_new, k_past, v_past = arrays[:4]
            k, v = (np.concatenate([p[:, :N_PAST], n], 1) for p, n in ((k_past, k_new), (v_past, v_new)))
            named: Mapping[str, Any] = {**static, **({numbers: per_head} if numbers else {})}
            return attention_of(q, k, v, N_PAST, **named)

        return t.Example(
            (query, new, new, past, past, query, *extra), {**static, **sizes_of(kernel, rows)}, reference,
            step={"n_past": N_PAST, "n_new": count}, tolerance=2.0**-7 if dtype is t.f16 else None,
        )  # fmt: skip

    return Form(kernel, words, DTYPES, make)


def _valid_slots(dtype: t.DType, size: int) -> t.Example:
    def reference() -> Values:
        bias = np.where(np.arange(size) < N_PAST, 0.0, -np.inf)
        return np.stack([np.ones(size), bias], 1)

    return t.Example((t.dense(dtype, (size, 2)),), {}, reference, step={"n_past": N_PAST, "n_new": 1})


def _sparse(dtype: t.DType, size: int) -> t.Example:
    slots, chosen = 40, np.random.default_rng(size).integers(-3, 44, (2, size)).astype(np.int32)
    query, cache = t.dense(dtype, (2, HEADS, DEPTH)), t.dense(dtype, (slots, DEPTH))
    out = t.dense(dtype, (2, HEADS, DEPTH // 2))

    def reference(q: Values, rows: Values, *_: Values) -> Values:
        found = []
        for token, numbers in zip(q, chosen, strict=True):
            keys = rows[numbers[(numbers >= 0) & (numbers < slots)]]
            scores = 0.25 * token @ keys.T
            weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e30))
            found.append(weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30) @ keys[:, : DEPTH // 2])
        return np.stack(found)

    return t.Example(
        (query, cache, chosen, out), {"scale": 0.25, "bk": TILE}, reference,
        tolerance=None if dtype is t.f32 else 2.0**-7 if dtype is t.f16 else 2.0**-4,
    )  # fmt: skip


def _linear(dtype: t.DType, size: int) -> t.Example:
    new, held = t.dense(dtype, (GROUPS, size, DEPTH)), t.dense(dtype, (GROUPS, DEPTH, DEPTH))

    def reference(q: Values, k: Values, v: Values, state: Values) -> tuple[Values, Values]:
        matrix, out = state.copy(), np.zeros(v.shape)
        for i in range(size):
            matrix = matrix + k[:, i, :, None] * v[:, i, None, :]
            out[:, i] = 0.25 * np.einsum("hd,hde->he", q[:, i], matrix)
        return out, matrix

    return t.Example(
        (new, new, new, held, new, held), {"scale": 0.25}, reference, step={"n_past": 0, "n_new": size},
        tolerance=2.0**-5 if dtype is t.f16 else None,
    )  # fmt: skip


_VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("causal, grouped queries", {}),
    ("window", {"window": 6}),
    ("soft-cap", {"softcap": 2.0}),
    ("ALiBi slopes", {"numbers": "slopes"}),
    ("sinks", {"numbers": "sinks"}),
)
FORMS = (
    *(_form(f"decomposed, {words}", **params) for words, params in _VARIANTS),
    _form("decomposed, one row, decode", rows=1),
    *(_form(f"flash, {words}", "attention_flash", **params) for words, params in _VARIANTS),
    *(_form(f"incremental, {words}", "attention_incremental", rows=1, **params) for words, params in _VARIANTS),
    Form("attention_sparse", "rows by number", FLOATS, _sparse),
    Form("attention_linear", "replace state", DTYPES, _linear),
    Form("valid_slots", "table of the DPU", (t.f32,), _valid_slots),
)
