"""The registry: every kernel runs with every tile size that its candidates offer, and all of them agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import tile as t
from npukernels import registry
from npukernels.codes import Row
from tests.support.codes import random_rows
from tests.support.kernels import run_both, types_of

RNG = np.random.default_rng(23)
STEP = {"n_past": 5, "n_new": 3}


def normal(*shape: int, dtype: type = np.float16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def gated(a: t.Tile, b: t.Tile) -> t.Tile:
    return a * t.sigmoid(a) * b


ROW = Row(48, t.u4, 16, 8, t.f16)


def codes(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype)


ONE = np.ones((1, 1), np.float32)
OUT = np.zeros((20, 36), np.float16)
NEW = [normal(4, 3, 8), normal(2, 3, 8), normal(2, 3, 8)]
HEADS = [*NEW, normal(2, 40, 8), normal(2, 40, 8), np.zeros((4, 3, 8), np.float16)]
CASES: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    "matmul": ([normal(20, 48), normal(36, 48), OUT], {}),
    "matmul_bias": ([normal(20, 48), normal(36, 48), OUT, normal(36, 2, dtype=np.float32)], {}),
    "matmul_pair": ([normal(20, 48), normal(36, 48), normal(36, 48), OUT], {"epilogue": gated}),
    "matmul_codes": ([normal(20, 48), random_rows(36, ROW)[0], OUT], {"row": ROW}),
    "matmul_codes_pair": (
        [normal(20, 48), random_rows(36, ROW)[0], random_rows(36, ROW, 1)[0], OUT],
        {"row": ROW, "epilogue": gated},
    ),
    "bmm_nk": ([normal(3, 5, 8), normal(3, 20, 8), np.zeros((3, 5, 20), np.float16)], {}),
    "bmm_kn": ([normal(3, 5, 8), normal(3, 8, 20), np.zeros((3, 5, 20), np.float16)], {}),
    "map": ([normal(5, 7), normal(1, 7), np.zeros((5, 7), np.float16)], {"fn": gated}),
    "copy": ([normal(5, 7), np.zeros((5, 7), np.float32)], {}),
    "fill": ([np.zeros((5, 7), np.float16)], {"value": 2.0}),
    "reduce": ([normal(5, 7), np.zeros((5, 1), np.float32)], {"op": "mean"}),
    "cumsum": ([normal(5, 7), np.zeros((5, 7), np.float32)], {"axis": 0}),
    "softmax": ([normal(5, 7), np.zeros((5, 7), np.float16)], {}),
    "rmsnorm": ([normal(5, 7), normal(7), np.zeros((5, 7), np.float16)], {"eps": 1e-5}),
    "layernorm": ([normal(5, 7), normal(7), normal(7), np.zeros((5, 7), np.float16)], {"eps": 1e-5}),
    "layernorm_plain": ([normal(5, 7), normal(7), np.zeros((5, 7), np.float16)], {"eps": 1e-5}),
    "rotary": ([normal(4, 3, 8), normal(3, 4), normal(3, 4), np.zeros((4, 3, 8), np.float16)], {"rotary_dim": 8}),
    "attention": (HEADS, {"scale": 0.35}),
    "gather_rows": ([normal(9, 4), np.array([3, 0, 8, 8, 1], np.int32), np.zeros((5, 4), np.float16)], {}),
    "gather_codes": (
        [random_rows(9, ROW)[0], np.array([3, 0, 8, 9, 1], np.int32), np.zeros((5, 48), np.float16)],
        {"row": ROW},
    ),
    "scatter_rows": (
        [normal(9, 6), np.array([3, 0, 3], np.int32), normal(3, 6), np.zeros((9, 6), np.float16)],
        {"reduction": "add"},
    ),
    "append_rows": ([normal(3, 3, 4), normal(3, 9, 4)], {}),
    "ring_slots": ([np.zeros(3, np.int32)], {"ring": 4}),
    "ring_rows": ([normal(3, 2, 4), np.array([3, -1, 0], np.int32), normal(4, 2, 4)], {}),
    "attention_ring": (
        [*NEW, normal(2, 4, 8), normal(2, 4, 8), np.zeros((4, 3, 8), np.float16)],
        {"scale": 0.35, "window": 5, "ring": 4},
    ),
    "depthwise": ([normal(9, 20), normal(3, 20), np.zeros((7, 20), np.float16), normal(20)], {}),
    "last_rows": ([normal(7, 20), np.zeros((4, 20), np.float16)], {}),
    "integer_linear": (
        [
            codes(20, 48),
            ONE,
            codes(1, 1),
            codes(36, 48, dtype=np.int8),
            np.ones((1, 36), np.float32),
            RNG.integers(-900, 900, (1, 36)).astype(np.int32),
            np.zeros((20, 36), np.float32),
            RNG.integers(-9, 9, (1, 36)).astype(np.int32),
        ],
        {},
    ),
    "integer_product": (
        [codes(3, 5, 8), codes(3, 20, 8), np.zeros((3, 5, 20), np.int32), codes(1, 1, 1), codes(1, 20, 1)],
        {},
    ),
    "code_range": ([normal(20, 7), ONE, codes(1, 1)], {}),
    "valid_rows": ([normal(3, 9, 4), np.zeros((3, 9, 4), np.float16)], {}),
    "past_rows": ([normal(3, 9, 4), np.zeros((3, 9, 4), np.float16)], {}),
    "step_mask": ([np.zeros((3, 12), np.bool_)], {"capacity": 9, "causal": True, "window": 4}),
    "step_bias": ([normal(2, dtype=np.float32), np.zeros((2, 3, 12), np.float16)], {"capacity": 9}),
    "step_rows": ([normal(9, 4), np.zeros((3, 4), np.float16)], {}),
}


def test_every_kernel_has_a_case() -> None:
    assert set(CASES) == set(registry.KERNELS)
    for name, spec in registry.KERNELS.items():
        assert spec.name == name and spec.family and spec.form


@pytest.mark.parametrize("name", CASES)
def test_candidates_agree_and_end_small(name: str) -> None:
    arrays, params = CASES[name]
    spec = registry.get(name)
    candidates = list(spec.candidates(types_of(arrays), params))
    results, sizes = [], []
    cache = t.TraceCache()
    for candidate in candidates[:: max(1, len(candidates) // 12)] + candidates[-1:]:
        results.append(run_both(spec.kernel, arrays, step=STEP, cache=cache, **params, **candidate))
        sizes.append(spec.kernel.trace(types_of(arrays), {**params, **candidate}, cache=cache).plan().bytes)
    assert min(sizes) <= sizes[0]
    for got in results[1:]:
        for array, first in zip(got, results[0], strict=True):
            # sums in steps along K round once a step, all others once in all
            np.testing.assert_allclose(
                array.astype(np.float64), first.astype(np.float64), rtol=2e-3, atol=2e-2 if "matmul" in name else 2e-3
            )


def test_the_arity_of_a_map_is_part_of_its_name() -> None:
    assert registry.get("map3") is registry.get("map")
    with pytest.raises(KeyError, match=r"no kernel 'mop'; there are matmul, matmul_bias, .*step_rows"):
        registry.get("mop")


@pytest.mark.parametrize("free", [1_200_000, 300_000, 60_000])
@pytest.mark.parametrize("m,n,k", [(1, 1536, 576), (256, 576, 1536), (64, 49152, 576)])
def test_a_matmul_finds_sizes_for_the_memory_there_is(m: int, n: int, k: int, free: int) -> None:
    types = [t.dense(t.f16, (m, k), "cmx"), t.dense(t.f16, (n, k)), t.dense(t.f16, (m, n))]
    spec = registry.get("matmul")
    tried = 0
    for sizes in spec.candidates(types, {}, free):
        tried += 1
        if spec.kernel.trace(types, sizes).plan().bytes <= free:
            break
    else:
        raise AssertionError("no candidate fits")
    assert tried <= 12  # what cannot fit has been left out before tracing


def test_the_first_candidate_loads_the_least() -> None:
    """Weights cross DDR once, and activations that do not fit beside them as rarely as possible."""
    types = [t.dense(t.f16, (256, 4096)), t.dense(t.f16, (11008, 4096)), t.dense(t.f16, (256, 11008))]
    spec = registry.get("matmul")
    sizes = next(iter(spec.candidates(types, {}, 1_200_000)))
    x_loads, w_loads = -(-11008 // sizes["bn"]), -(-256 // sizes["bm"])
    loaded = 2 * (256 * 4096 * x_loads + 11008 * 4096 * w_loads)
    assert loaded < 150e6  # 92 MB is the floor; one row of blocks at a time would load 1.5 GB
