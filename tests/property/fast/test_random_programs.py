"""Fast mode against exact mode on random programs, with every choice of link passes."""

from __future__ import annotations

import numpy as np
import pytest

import npurt
from npurt.fast import FastDevice, LinkOptions
from tests.property.fast.programs import RandomProgram

PASSES = [LinkOptions(alias=alias, join=join) for alias in (False, True) for join in (False, True)]
STEPS = ((0, 4), (3, 2), (5, 4), (12, 1))


def check(seed: int, count: int) -> None:
    image = npurt.load_bytes(RandomProgram(seed, count).tiny.to_bytes())
    rng = np.random.default_rng(seed)
    inputs = {"x": rng.normal(size=(4, 8)).astype(np.float32), "h": rng.normal(size=(4, 8)).astype(np.float16)}
    exact = npurt.Device(image)
    fasts = [FastDevice(image, options) for options in PASSES]
    for n_past, n_new in STEPS:
        wanted = exact.run("main", inputs, n_past=n_past, n_new=n_new)
        wanted["state"] = exact.state("k")
        for options, fast in zip(PASSES, fasts, strict=True):
            got = fast.run("main", inputs, n_past=n_past, n_new=n_new)
            got["state"] = fast.state("k")
            for name, values in wanted.items():
                close(got[name], values, f"seed {seed}, {name}, n_past {n_past}, {options}")


def close(got: np.ndarray, wanted: np.ndarray, what: str) -> None:
    """Within a few steps of the f16 grid of the largest value: values pass through many roundings and cancel."""
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(wanted) & (np.abs(wanted) < 6e4)
    size = max(float(np.abs(wanted[finite]).max(initial=0.0)), 1.0)
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=4e-3, atol=8e-3 * size, err_msg=what)


@pytest.mark.parametrize("seed", range(40))
def test_short_programs(seed):
    check(seed, 12)


@pytest.mark.parametrize("seed", range(100, 112))
def test_long_programs(seed):
    check(seed, 60)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_sweep(block):
    for seed in range(1000 + 40 * block, 1040 + 40 * block):
        check(seed, 12 + seed % 40)
