"""Attention over past and new rows, against float64, on caches whose invalid slots hold NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npukernels import attention
from tests.support.kernels import run_both, types_of

RNG = np.random.default_rng(5)
MEMORY = ["cmx", "cmx", "cmx", "ddr", "ddr", "cmx"]


def reference(
    q: np.ndarray, k_new: np.ndarray, v_new: np.ndarray, k_past: np.ndarray, v_past: np.ndarray,
    n_past: int, scale: float, softcap: float, window: int, slopes: np.ndarray | None = None,
    sinks: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """The definition in the kernel's docstring, head by head and row by row."""
    q, k_new, v_new, k_past, v_past = (a.astype(np.float64) for a in (q, k_new, v_new, k_past, v_past))
    heads, rows, _ = q.shape
    share = heads // k_new.shape[0]
    out = np.zeros((heads, rows, v_new.shape[2]))
    for h in range(heads):
        k = np.concatenate([k_past[h // share, :n_past], k_new[h // share]])
        v = np.concatenate([v_past[h // share, :n_past], v_new[h // share]])
        for i in range(rows):
            position = np.arange(n_past + rows)
            seen = position <= n_past + i
            if window:
                seen &= position > n_past + i - window
            s = scale * k[seen] @ q[h, i]
            s = softcap * np.tanh(s / softcap) if softcap else s
            if slopes is not None:
                s = s + float(slopes[h]) * (position[seen] - n_past - i)
            top = s.max() if sinks is None else max(s.max(), float(sinks[h]))
            p = np.exp(s - top)
            total = p.sum() if sinks is None else p.sum() + np.exp(float(sinks[h]) - top)
            out[h, i] = (p / total) @ v[seen]
    return out


def case(rows: int, past: int, n_past: int, dtype: type = np.float16) -> list[np.ndarray]:
    heads, groups, depth, width = 6, 2, 8, 4

    def normal(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape).astype(dtype)

    new = [normal(heads, rows, depth), normal(groups, rows, depth), normal(groups, rows, width)]
    arrays = [*new, normal(groups, past, depth), normal(groups, past, width), np.zeros((heads, rows, width), dtype)]
    for cache in arrays[3:5]:
        cache[:, n_past:] = np.nan
    return arrays


@pytest.mark.parametrize("n_past", [0, 1, 4, 5, 10])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}, {"window": 4}])
def test_attention(rows: int, n_past: int, options: dict[str, Any]) -> None:
    arrays = case(rows, 10, n_past)
    step = {"n_past": n_past, "n_new": rows}
    got = run_both(attention.attention, arrays, memory=MEMORY, step=step, scale=0.35, bm=3, groups=2, bk=4, **options)
    want = reference(*arrays[:5], n_past, 0.35, options.get("softcap", 0.0), options.get("window", 0))
    np.testing.assert_allclose(got[5].astype(np.float64), want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("rows,groups", [(1, 1), (4, 1), (4, 2)])
def test_attention_in_f32_from_ddr(rows: int, groups: int) -> None:
    arrays = case(rows, 7, 6, np.float32)
    step = {"n_past": 6, "n_new": rows}
    got = run_both(attention.attention, arrays, step=step, scale=0.35, bm=4, groups=groups, bk=8)[5]
    np.testing.assert_allclose(got, reference(*arrays[:5], 6, 0.35, 0.0, 0), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "rows,groups,past,n_past", [(1, 2, 7, 6), (1, 1, 7, 0), (4, 1, 7, 3), (4, 2, 7, 7), (4, 2, 0, 0)]
)
@pytest.mark.parametrize("slopes", [False, True])
@pytest.mark.parametrize("sinks", [False, True])
def test_slopes_and_sinks_of_heads(rows: int, groups: int, past: int, n_past: int, slopes: bool, sinks: bool) -> None:
    arrays: list[Any] = case(rows, past, n_past, np.float32)
    slope = np.array([-0.5, 0.25, 0.125, 1.5, 0.0, 0.75], np.float32) if slopes else None
    sink = np.array([-40.0, 3.0, 0.5, 90.0, -np.inf, 1.0], np.float32) if sinks else None
    caches = arrays[3:5] if past else [None, None]
    step = {"n_past": n_past, "n_new": rows}
    operands = [*arrays[:3], *caches, arrays[5], slope, sink]
    got = run_both(attention.attention, operands, step=step, scale=0.35, bm=3, groups=groups, bk=4, window=5)[5]
    want = reference(*arrays[:5], n_past, 0.35, 0.0, 5, slope, sink)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)
    if not slopes and not sinks:  # the plain form is the form without the operands, to the bit
        plain = run_both(attention.attention, operands[:6], step=step, scale=0.35, bm=3, groups=groups, bk=4, window=5)
        np.testing.assert_array_equal(got, plain[5])


def test_attention_without_a_past() -> None:
    arrays = case(5, 0, 0)
    got = run_both(attention.attention, [*arrays[:3], None, None, arrays[5]], scale=0.35, bm=2, groups=1, bk=4)[5]
    np.testing.assert_allclose(got.astype(np.float64), reference(*arrays[:5], 0, 0.35, 0.0, 0), rtol=4e-3, atol=4e-3)
    same = run_both(attention.attention, arrays, step={"n_past": 0, "n_new": 5}, scale=0.35, bm=2, groups=1, bk=4)[5]
    np.testing.assert_array_equal(got, same)


def test_operands_may_be_views_of_a_projection() -> None:
    """q, k, v as [C, heads, D] in memory and out as [C, H, D], which is how linear layers leave and take them."""
    arrays = case(4, 6, 3)
    views = [np.ascontiguousarray(a.transpose(1, 0, 2)).transpose(1, 0, 2) for a in arrays]
    step = {"n_past": 3, "n_new": 4}
    plain = run_both(attention.attention, arrays, memory=MEMORY, step=step, scale=0.35, bm=4, groups=2, bk=4)[5]
    strided = [*views[:3], *arrays[3:5], views[5]]
    got = run_both(attention.attention, strided, memory=MEMORY, step=step, scale=0.35, bm=4, groups=2, bk=4)[5]
    np.testing.assert_array_equal(got, plain)


def test_a_decode_step_is_one_softmax_run_and_blocks_are_predicated() -> None:
    arrays = case(1, 16, 0)
    trace = attention.attention.trace(types_of(arrays, MEMORY), {"scale": 0.35, "bm": 1, "groups": 2, "bk": 4})
    engines = [task.engine for task in trace.plan().tasks]
    assert engines.count("shave") == 1  # all heads of all groups
    assert engines.count("dpu") == 2 * (1 + 4)  # scores and values: the new rows and four past blocks
    whens = [task.when for task in trace.templates[0].tasks if task.engine == "dma.in"]
    assert sorted(when.above.const for when in whens if when is not None) == [0, 0, 4, 4, 8, 8, 12, 12]
