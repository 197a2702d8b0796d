"""Narrow floats as float32: decoding, the grid, the budget."""

from __future__ import annotations

import numpy as np
import pytest

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.fast.context import Context, Pool
from npurt.fast.memory import Memory, decode_f16
from npurt.fast.refs import Plane, make_ref

ALL = np.arange(1 << 16, dtype=np.uint16)


def memory(nbytes: int, budget: int = 1 << 20) -> Memory:
    return Memory({1: np.arange(nbytes, dtype=np.uint8)}, 1, budget)


def test_every_f16_is_decoded_exactly():
    out = np.empty(ALL.size, np.float32)
    decode_f16(ALL, out)
    np.testing.assert_array_equal(out, ALL.view(np.float16).astype(np.float32))


@pytest.mark.parametrize("special", [0x7C00, 0xFC00, 0x7E00])
def test_a_block_with_one_special_value(special):
    bits = np.full(3 << 16, 0x3C01, np.uint16)
    bits[100_000] = special
    out = np.empty(bits.size, np.float32)
    decode_f16(bits, out)
    np.testing.assert_array_equal(out, bits.view(np.float16).astype(np.float32))


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
def test_the_grid_is_that_of_exact_mode(dtype):
    rng = np.random.default_rng(0)
    halves = ALL[:0x7C00].view(np.float16).astype(np.float32)
    values = np.concatenate(
        [
            rng.integers(0, 1 << 32, 20000, dtype=np.uint32).view(np.float32),
            rng.normal(size=20000).astype(np.float32)
            * np.float32(2.0) ** rng.integers(-30, 20, 20000).astype(np.float32),
            (halves[:-1] + halves[1:]) / 2,  # ties
            np.float32([0, 65504, 65519.99, 65520, 1e9, np.inf, np.nan, 2.0**-25, 2.0**-24, 6e-5]),
        ]
    )
    values = np.concatenate([values, -values])
    with np.errstate(all="ignore"):
        Context(memory(16), grid=True).round_now(values, out := np.empty_like(values), dtype)
        wanted = numerics.round_f16(values) if dtype is DType.F16 else numerics.round_bf16(values)
    np.testing.assert_array_equal(out, wanted)


def test_no_rounding_where_it_is_switched_off():
    values = np.float32([1.0001, 3.3333])
    Context(memory(16), grid=False).round_now(values, out := np.zeros(2, np.float32), DType.F16)
    np.testing.assert_array_equal(out, values)


def test_constants_are_decoded_once_and_counted():
    store = memory(64)
    ref = make_ref(1, DType.F16, 8, (4,), (2,))
    view = store.view(ref)
    np.testing.assert_array_equal(view, np.arange(64, dtype=np.uint8)[8:16].view(np.float16).astype(np.float32))
    view[0] = 7.0  # what is decoded stays as it is
    assert store.view(make_ref(1, DType.F16, 0, (8,), (2,)))[4] == 7.0
    assert store.decoded == 2 * 16


def test_the_budget_counts_what_is_missing():
    store = memory(64, budget=40)
    assert store.affordable(make_ref(1, DType.F16, 0, (10,), (2,)))
    assert not store.affordable(make_ref(1, DType.F16, 0, (11,), (2,)))
    store.view(make_ref(1, DType.F16, 0, (8,), (2,)))
    assert store.affordable(make_ref(1, DType.F16, 0, (10,), (2,)))


def test_the_bytes_come_back_from_a_shadow():
    store = Memory({1: np.zeros(0, np.uint8), 2: np.zeros(8, np.uint8)}, 1, 0)
    store.shadow(2, Plane.HALF)[:] = [1, -2.5, 65504, 0]
    store.encode(2, Plane.HALF, 0, 8)
    assert store.raw[2].view(np.float16).tolist() == [1, -2.5, 65504, 0]


def test_a_pool_gives_an_array_back_to_the_next():
    pool = Pool()
    first = pool.take((3, 5))
    pool.give(first)
    second = pool.take((16,), np.int32)
    assert np.shares_memory(first, second)
    assert not np.shares_memory(second, pool.take((16,)))
