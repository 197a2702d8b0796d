"""The registry: every kernel runs with every tile size that its candidates offer, and all of them agree."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import tile as t
from npuc.authoring.trial import make_arrays
from npukernels import registry
from npukernels.forms import FORMS
from tests.support.kernels import run_both

FIRST_FORM = {form.kernel: form for form in reversed(FORMS)}


def test_every_kernel_has_a_form_to_try_it_by() -> None:
    assert set(FIRST_FORM) == set(registry.KERNELS)
    for name, spec in registry.KERNELS.items():
        assert spec.name == name and spec.family and spec.form


@pytest.mark.parametrize("name", registry.KERNELS)
def test_candidates_agree_and_end_small(name: str) -> None:
    form = FIRST_FORM[name]
    example = form.example(form.dtypes[0], 20)
    arrays, types = make_arrays(example.arrays), example.types
    spec = registry.get(name)
    candidates = list(spec.candidates(types, example.params))
    results, sizes = [], []
    cache = t.TraceCache()
    for candidate in candidates[:: max(1, len(candidates) // 12)] + candidates[-1:]:
        params = {**example.params, **candidate}
        results.append(run_both(spec.kernel, arrays, step=example.step, cache=cache, **params))
        sizes.append(spec.kernel.trace(types, params, cache=cache).plan().bytes)
    assert min(sizes) <= sizes[0]
    for got in results[1:]:
        for array, first in zip(got, results[0], strict=True):
            if array is not None and first is not None:
                # sums in steps along K round once a step, all others once in all
                tolerance = 2e-2 if spec.family in ("linear", "experts") else 2e-3
                np.testing.assert_allclose(
                    array.astype(np.float64), first.astype(np.float64), rtol=2e-3, atol=tolerance
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
