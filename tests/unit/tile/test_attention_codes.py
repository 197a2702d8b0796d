"""Attention over caches of codes: what it takes, what it loads, and that the DPU's table hides slots of codes, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import tile as t
from npuc.tile.errors import KernelError
from npukernels import registry
from npukernels.forms.attention import attention_of
from npukernels.rows import valid_slots
from tests.support.kernels import run_both, types_of

SIZES: dict[str, dict[str, int]] = {
    "attention": {"bm": 1, "groups": 2, "bk": 4},
    "attention_flash": {"groups": 2, "batch": 2, "bm": 1, "br": 1, "bk": 4},
    "attention_incremental": {"groups": 2, "part": 8, "bk": 4},
}
GROUPS, SLOTS, DEPTH, WIDTH = 2, 16, 16, 8
MEMORY = [*["cmx"] * 3, "ddr", "ddr", "cmx", *["ddr"] * 3, "cmx", "ddr", "ddr"]


def operands(n_past: int) -> list[Any]:
    """One query of four heads; keys and values are int8 codes, with NaN for scales from n_past on."""
    random = np.random.default_rng(8)
    new = [random.standard_normal((n, 1, d)).astype(np.float16) for n, d in ((4, DEPTH), (2, DEPTH), (2, WIDTH))]
    codes = [random.integers(0, 256, (GROUPS, SLOTS, d), np.uint8) for d in (DEPTH, WIDTH)]
    scales = [random.uniform(0.002, 0.02, (GROUPS, SLOTS)).astype(np.float32) for _ in codes]
    for each in scales:
        each[:, n_past:] = np.nan
    return [*new, *codes, np.zeros((4, 1, WIDTH), np.float16), None, None, None, None, *scales]


def expected(arrays: list[Any], n_past: int) -> np.ndarray:
    wide = [
        codes.view(np.int8)[:, :n_past].astype(np.float64) * scales[:, :n_past, None]
        for codes, scales in zip(arrays[3:5], arrays[10:12], strict=True)
    ]
    q, k_new, v_new = (each.astype(np.float64) for each in arrays[:3])
    keys, values = (np.concatenate([old, new], 1) for old, new in zip(wide, (k_new, v_new), strict=True))
    result: np.ndarray = attention_of(q, keys, values, n_past, scale=0.3)
    return result


@pytest.mark.parametrize("widen", [False, True])
@pytest.mark.parametrize("n_past", [0, 1, 8, 11, 16])
@pytest.mark.parametrize("name", SIZES)
def test_any_number_of_valid_rows(name: str, n_past: int, widen: bool) -> None:
    arrays, step = operands(n_past), {"n_past": n_past, "n_new": 1}
    table = np.zeros((SLOTS, 2), np.float32)
    valid_slots.eager(table, step=step)
    arrays[9] = table
    kernel, sizes = registry.get(name).kernel, SIZES[name]
    got = run_both(kernel, arrays, memory=MEMORY, step=step, scale=0.3, codes=t.i8, widen=widen, **sizes)[5]
    assert got is not None
    np.testing.assert_allclose(got.astype(np.float64), expected(arrays, n_past), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("name", SIZES)
def test_codes_cross_ddr_as_bytes(name: str) -> None:
    """Each slot is loaded once: its codes, and two scales for each key head."""
    params = {"scale": 0.3, "codes": t.i8, **SIZES[name]}
    trace = registry.get(name).kernel.trace(types_of(operands(SLOTS), MEMORY), params)
    loads = [task for template in trace.templates for task in template.tasks if task.engine == "dma.in"]
    loaded = [view for task in loads if task.when is not None for view in task.writes]
    nbytes = sum(int(np.prod(view.shape)) * view.dtype.nbytes for view in loaded)
    assert nbytes == GROUPS * SLOTS * (DEPTH + WIDTH + 2 * 4)


@pytest.mark.parametrize(
    ("codes", "dropped", "message"),
    [
        (None, (), "a cache of codes has `codes`, k_scales and v_scales, one of floats none of them"),
        (t.i8, (10, 11), "a cache of codes has `codes`, k_scales and v_scales, one of floats none of them"),
        (t.i8, (11,), "a cache of codes has `codes`, k_scales and v_scales, one of floats none of them"),
        (t.i4, (), "a cache holds codes of i8 or e4m3, not i4"),
    ],
)
def test_what_does_not_go_together(codes: t.DType | None, dropped: tuple[int, ...], message: str) -> None:
    arrays = [None if number in dropped else array for number, array in enumerate(operands(4))]
    params = {"scale": 0.3, "codes": codes, **SIZES["attention_flash"]}
    with pytest.raises(KernelError, match=r"caches\.py") as caught:
        registry.get("attention_flash").kernel.trace(types_of(arrays, MEMORY), params)
    assert str(caught.value.__cause__) == message
