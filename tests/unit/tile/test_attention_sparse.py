"""Sparse and linear attention against float64, with the edge rules of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import tile as t
from npukernels.attention_linear import attention_linear
from npukernels.attention_sparse import attention_sparse
from npurt import numerics
from tests.support.kernels import run_both, types_of

Array = np.ndarray
HEADS, DEPTH, WIDTH, SLOTS = 8, 64, 32, 90
SCALE = 0.5
NO_ROWS = [-(2**31), -123456, -1, SLOTS, 114514, 1919810, 2147480000, 2**31 - 1]
FORMAT = {t.e4m3: (t.e8m0, 32, 448.0), t.e2m1: (t.e4m3, 16, 6.0)}


def wide(bits: Array) -> Array:
    """bf16 bits as float64."""
    return numerics.load(bits, t.bf16).astype(np.float64)


def reference(
    q: Array, rows: Array, indices: Array, lengths: Array | None, sinks: Array | None
) -> tuple[Array, Array, Array]:
    """out, lse and largest score in float64, token by token. rows: the cache's numbers."""
    tokens = len(indices)
    out = np.zeros((tokens, HEADS, WIDTH))
    lse, largest = np.full((tokens, HEADS), np.inf), np.full((tokens, HEADS), -np.inf)
    for s in range(tokens):
        chosen = indices[s] if lengths is None else indices[s, : lengths[s]]
        chosen = chosen[(chosen >= 0) & (chosen < len(rows))]
        if not chosen.size:
            continue
        scores = SCALE * q[s] @ rows[chosen].T
        largest[s] = scores.max(1)
        e = np.exp(scores - largest[s][:, None])
        lse[s] = np.log(e.sum(1)) + largest[s]
        below = e.sum(1) if sinks is None else e.sum(1) + np.exp(sinks - largest[s])
        out[s] = (e / below[:, None]) @ rows[chosen][:, :WIDTH]
    return out, lse, largest


def close(got: Array, want: Array, absolute: float, relative: float) -> None:
    """An element passes by either bound; infinities must match."""
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    error = np.abs(np.where(finite, got, 0.0) - np.where(finite, want, 0.0))
    assert ((error <= absolute) | (error <= relative * np.abs(np.where(finite, want, 0.0)))).all()


def run(q: Array, cache: Array, indices: Array, bk: int, lengths: Array | None, sinks: Array | None,
        codes: t.DType | None = None) -> list[Any]:  # fmt: skip
    tokens = len(indices)
    out, numbers = np.zeros((tokens, HEADS, WIDTH), np.uint16), [np.zeros((tokens, HEADS), np.float32) for _ in "12"]
    arrays = [q, cache, indices, out, lengths, sinks, *numbers]
    return run_both(attention_sparse, arrays, scale=SCALE, bk=bk, codes=codes)


@pytest.mark.parametrize("topk,bk", [(1, 16), (15, 16), (16, 16), (17, 16), (37, 16), (37, 64)])
@pytest.mark.parametrize("amplified", [1.0, 30.0])
@pytest.mark.parametrize("sinks", [False, True])
def test_sparse_attention(topk: int, bk: int, amplified: float, sinks: bool) -> None:
    """Amplified keys raise the largest score beyond the threshold, so that sums are rescaled."""
    rng = np.random.default_rng(topk)
    q, rows = (numerics.store(a.astype(np.float32), t.bf16) for a in (
        rng.standard_normal((4, HEADS, DEPTH)) / 10 + 0.02, rng.standard_normal((SLOTS, DEPTH)) / 10 + 0.02,
    ))  # fmt: skip
    rows[::9] = numerics.store((wide(rows[::9]) * amplified).astype(np.float32), t.bf16)
    indices = rng.integers(0, SLOTS, (4, topk)).astype(np.int32)
    indices[1, : min(topk, 8)] = NO_ROWS[: min(topk, 8)]
    indices[2] = -1
    lengths = np.array([topk, topk, topk, topk // 2], np.int32)
    used = np.unique(np.concatenate([indices[:3].ravel(), indices[3, : topk // 2]]))
    unused = np.setdiff1d(np.arange(SLOTS), used)
    rows[unused] = 0x7FC0  # NaN
    sink = np.array([-np.inf, np.inf, 0.0, 5.0, -5.0, 1.0, 2.0, 80.0], np.float32) if sinks else None
    got = run(q, rows, indices, bk, lengths, sink)
    with np.errstate(over="ignore"):
        out, lse, largest = reference(wide(q), wide(rows), indices, lengths, sink)
    if amplified == 1.0:
        close(wide(got[3]), out, 8e-4, 3.01 / 128)
    cosine = 2 * (wide(got[3]) * out).sum() / ((wide(got[3]) ** 2).sum() + (out**2).sum())
    assert 1 - cosine < 1e-5 or not out.any()
    close(got[6].astype(np.float64), lse, 1e-6 if amplified == 1.0 else 1e-5, 4.01 / 65536)
    close(got[7].astype(np.float64), largest, 1e-6, 2.01 / 65536)
    assert np.isposinf(got[6][2]).all() and not wide(got[3])[2].any()


@pytest.mark.parametrize("codes,nbytes", [(t.e4m3, DEPTH + DEPTH // 32), (t.e2m1, DEPTH // 2 + DEPTH // 16)])
def test_caches_of_codes(codes: t.DType, nbytes: int) -> None:
    """Rows of codes and scales side by side; 528 and 288 bytes for 512 numbers."""
    rng = np.random.default_rng(7)
    scales, group, _ = FORMAT[codes]
    cache = np.zeros((SLOTS, nbytes), np.uint8)
    held = DEPTH // 2 if codes is t.e2m1 else DEPTH
    cache[:, :held] = rng.integers(0, 256, (SLOTS, held))
    cache[:, :held][(cache[:, :held] & 0x7F) == 0x7F] = 1  # no NaN among the e4m3 codes
    cache[:, held:] = rng.integers(112, 115, (SLOTS, nbytes - held)) if scales is t.e8m0 else rng.integers(
        8, 20, (SLOTS, nbytes - held))  # fmt: skip
    numbers = _numbers(cache[:, :held], codes) * np.repeat(_numbers(cache[:, held:], scales), group, 1)
    rows = numerics.load(numerics.store(numbers.astype(np.float32), t.bf16), t.bf16).astype(np.float64)
    q = numerics.store((rng.standard_normal((3, HEADS, DEPTH)) / 4).astype(np.float32), t.bf16)
    indices = rng.integers(-2, SLOTS, (3, 21)).astype(np.int32)
    got = run(q, cache, indices, 8, None, None, codes)
    out, lse, _ = reference(wide(q), rows, indices, None, None)
    close(wide(got[3]), out, 1e-3, 2.01 / 128)
    close(got[6].astype(np.float64), lse, 1e-6, 8.01 / 65536)


def _numbers(data: Array, dtype: t.DType) -> Array:
    """What bytes mean, from the formats' definitions."""
    if dtype is t.e8m0:
        return np.exp2(data.astype(np.float64) - 127)
    if dtype is t.e2m1:
        table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
        nibbles = np.stack([data & 15, data >> 4], -1).reshape(len(data), -1)
        return np.where(nibbles & 8, -1.0, 1.0) * table[nibbles & 7]
    exponent, fraction = (data >> 3 & 15).astype(int), (data & 7) / 8
    size = np.where(exponent == 0, fraction * 2.0**-6, (1 + fraction) * np.exp2(exponent - 7.0))
    return np.where(data & 0x80, -size, size)


def test_a_rescale_is_a_task_that_a_flag_decides() -> None:
    arrays: list[Any] = [
        np.zeros((1, HEADS, DEPTH), np.uint16), np.zeros((SLOTS, DEPTH), np.uint16), np.zeros((1, 32), np.int32),
        np.zeros((1, HEADS, WIDTH), np.uint16),
    ]  # fmt: skip
    tasks = attention_sparse.trace(types_of(arrays), {"scale": SCALE, "bk": 16}).templates[0].tasks
    assert [task.engine for task in tasks if task.flag is not None] == ["shave", "dma.out"]  # none for the first block


@pytest.mark.parametrize("rows,valid", [(1, 1), (5, 5), (7, 3), (16, 16), (17, 1)])
@pytest.mark.parametrize("decay", [False, True])
def test_linear_attention_goes_on_from_its_state(rows: int, valid: int, decay: bool) -> None:
    rng = np.random.default_rng(rows)
    q, k, v = (rng.standard_normal((3, rows, n)).astype(np.float32) for n in (8, 8, 6))
    state = rng.standard_normal((3, 8, 6)).astype(np.float32)
    decays = np.array([0.5, 0.9, 1.0], np.float32) if decay else None
    arrays = [q, k, v, state, np.zeros((3, rows, 6), np.float32), np.zeros_like(state), decays]
    got = run_both(attention_linear, arrays, step={"n_past": 0, "n_new": valid}, scale=0.3)
    for h in range(3):
        matrix, rate = state[h].astype(np.float64), 1.0 if decays is None else float(decays[h])
        for i in range(valid):
            matrix = rate * matrix + np.outer(k[h, i], v[h, i])
            np.testing.assert_allclose(got[4][h, i], 0.3 * q[h, i] @ matrix, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(got[5][h], matrix, rtol=2e-5, atol=2e-5)
