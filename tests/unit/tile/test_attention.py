"""Each form of attention over past and new rows, against float64, on caches whose invalid slots hold NaN."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from npukernels import attention, registry
from npukernels.rows import valid_slots
from npukernels.scores import Rule
from tests.support.kernels import run_both, types_of

RNG = np.random.default_rng(5)
MEMORY = ["cmx", "cmx", "cmx", "ddr", "ddr", "cmx"]


def reference(
    q: np.ndarray, k_new: np.ndarray, v_new: np.ndarray, k_past: np.ndarray, v_past: np.ndarray,
    n_past: int, scale: float, softcap: float = 0.0, window: int = 0, slopes: np.ndarray | None = None,
    sinks: np.ndarray | None = None, causal: bool = True,
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
            position = np.arange(len(k))
            seen = position <= n_past + i if causal else position >= 0
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


FORMS: dict[str, dict[str, int]] = {
    "decomposed": {"bm": 3, "groups": 2, "bk": 4},
    "flash": {"groups": 2, "batch": 1, "bm": 4, "br": 3, "bk": 4},
    "flash, batched": {"groups": 2, "batch": 2, "bm": 5, "br": 2, "bk": 3},
    "incremental": {"groups": 2, "part": 16, "bk": 4},
    "incremental, split": {"groups": 1, "part": 4, "bk": 2},
}
SLOPES = np.array([-0.5, 0.25, 0.125, 1.5, 0.0, 0.75], np.float32)
SINKS = np.array([-40.0, 3.0, 0.5, 90.0, -np.inf, 1.0], np.float32)
OPTIONS: list[dict[str, Any]] = [
    {}, {"softcap": 3.0}, {"window": 4}, {"slopes": SLOPES}, {"sinks": SINKS},
    {"softcap": 2.0, "window": 3, "slopes": SLOPES, "sinks": SINKS},
]  # fmt: skip


def run_form(form: str, arrays: list[Any], n_past: int, slots: bool = True, **options: Any) -> np.ndarray:
    """The output of one form; its optional operands are given where the form can use them."""
    past = 0 if arrays[3] is None else arrays[3].shape[1]
    table = np.zeros((past, 2), np.float32)
    step = {"n_past": n_past, "n_new": arrays[0].shape[1]}
    if past:
        valid_slots.eager(table, step=step)
    slopes, sinks = (options.pop(name, None) for name in ("slopes", "sinks"))
    ones = np.ones((1, past + arrays[1].shape[1]), arrays[0].dtype)
    kernel = registry.get(registry.FORMS["attention"][form.partition(",")[0]]).kernel
    operands = [*arrays, slopes, sinks, *((ones, table if past else None) if slots else (None, None))]
    memory = [*MEMORY, "ddr", "ddr", "ddr", "cmx"]
    got = run_both(kernel, operands, memory=memory, step=step, scale=0.35, **FORMS[form], **options)[5]
    assert got is not None
    return got.astype(np.float64)


@pytest.mark.parametrize("n_past", [0, 5, 10])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form,count", [(form, 1) for form in FORMS] + [(form, 5) for form in list(FORMS)[:3]])
def test_forms(form: str, count: int, options: dict[str, Any], n_past: int) -> None:
    arrays = case(count, 10, n_past)
    want = reference(*arrays[:5], n_past, 0.35, **options)
    np.testing.assert_allclose(run_form(form, arrays, n_past, **options), want, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("past,n_past", [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (7, 6), (13, 13), (17, 9), (0, 0)])
def test_tails_without_the_operands_of_the_dpu(form: str, past: int, n_past: int) -> None:
    arrays: list[Any] = case(1 if "incremental" in form else 7, past, n_past, np.float32)
    want = reference(*arrays[:5], n_past, 0.35)
    given = arrays if past else [*arrays[:3], None, None, arrays[5]]
    np.testing.assert_allclose(run_form(form, given, n_past, slots=False), want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_cross_attention_sees_all_keys(form: str) -> None:
    queries, keys = case(1 if "incremental" in form else 5, 0, 0, np.float32), case(11, 0, 0, np.float32)
    arrays: list[Any] = [queries[0], *keys[1:3], None, None, queries[5]]
    want = reference(*arrays[:3], *queries[3:5], 0, 0.35, causal=False)
    np.testing.assert_allclose(run_form(form, arrays, 0, causal=False), want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
def test_large_scores_neither_overflow_nor_vanish(form: str) -> None:
    """Scores beyond what exp can take, of both signs, in blocks that raise a row's largest score again and again."""
    arrays = case(1 if "incremental" in form else 5, 10, 10, np.float32)
    arrays[0] *= 400
    want = reference(*arrays[:5], 10, 0.35)
    np.testing.assert_allclose(run_form(form, arrays, 10), want, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("rows,groups", [(1, 1), (4, 1), (4, 2)])
def test_attention_in_f32_from_ddr(rows: int, groups: int) -> None:
    arrays = case(rows, 7, 6, np.float32)
    step = {"n_past": 6, "n_new": rows}
    got = run_both(attention.attention, arrays, step=step, scale=0.35, bm=4, groups=groups, bk=8)[5]
    np.testing.assert_allclose(got, reference(*arrays[:5], 6, 0.35), rtol=2e-5, atol=2e-6)


def test_attention_without_a_past() -> None:
    arrays = case(5, 0, 0)
    got = run_both(attention.attention, [*arrays[:3], None, None, arrays[5]], scale=0.35, bm=2, groups=1, bk=4)[5]
    np.testing.assert_allclose(got.astype(np.float64), reference(*arrays[:5], 0, 0.35), rtol=4e-3, atol=4e-3)
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


def test_flash_needs_no_more_memory_for_more_keys() -> None:
    sizes = {"scale": 0.35, **FORMS["flash"]}
    kernel = registry.get("attention_flash").kernel
    peaks = {past: kernel.trace(types_of(case(5, past, 0), MEMORY), sizes).plan().bytes for past in (16, 64, 256)}
    assert len(set(peaks.values())) == 1


@pytest.mark.parametrize("n_past", [0, 1, 9, 16, 17, 40])
def test_incremental_loads_each_valid_row_once(n_past: int) -> None:
    arrays = case(1, 40, n_past)
    kernel = registry.get("attention_incremental").kernel
    trace = kernel.trace(types_of(arrays, MEMORY), {"scale": 0.35, "groups": 2, "part": 16, "bk": 8})
    assert [len(template.tasks) > 0 for template in trace.templates] == [True]
    loaded = 0
    for task in trace.templates[0].tasks:
        if task.engine == "dma.in" and (task.when is None or n_past > task.when.above.const):
            valid = task.op.valid  # type: ignore[union-attr]
            groups, slots, width = task.writes[0].shape
            loaded += 2 * groups * width * min(slots, n_past + valid.add)
    assert loaded == 2 * 2 * n_past * (8 + 4)


def test_a_flash_run_computes_in_narrow_lanes() -> None:
    """No vector program over the scores touches a wide float, so that they run in lanes of 16 bit."""
    arrays = case(5, 16, 0)
    kernel = registry.get("attention_flash").kernel
    trace = kernel.trace(types_of(arrays, MEMORY), {"scale": 0.35, **FORMS["flash"]})
    for task in trace.templates[0].tasks:
        views = [*task.reads, *task.writes]
        if task.engine == "shave" and any(view.shape[-1] in (4, 16) and len(view.shape) == 4 for view in views):
            assert {view.dtype.nbytes for view in views} == {2}


def test_which_blocks_a_window_hides() -> None:
    rule = Rule(1.0, window=3)
    for row, rows, column, columns in product(range(9), (1, 2, 4), range(9), (1, 3, 4)):
        seen = [i - 3 < j <= i for i in range(row, row + rows) for j in range(column, column + columns)]
        assert rule.hides_nothing(row, rows, column, columns) == all(seen)
        assert not (rule.hides_all(row, rows, column, columns) and any(seen))
    assert rule.hides_all(4, 4, 8, 4) and rule.hides_all(8, 4, 0, 6) and not rule.hides_all(8, 4, 0, 7)
