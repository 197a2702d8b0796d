"""Codes of 2 to 8 bits against ml_dtypes: every code, every number of the grid and every half between two."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from npurt import numerics
from npurt.abi.dtypes import DType

PEERS = {
    DType.I4: ml_dtypes.int4, DType.U4: ml_dtypes.uint4, DType.U2: ml_dtypes.uint2, DType.E2M1: ml_dtypes.float4_e2m1fn,
    DType.E4M3: ml_dtypes.float8_e4m3fn, DType.E5M2: ml_dtypes.float8_e5m2, DType.E8M0: ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
LARGEST = {DType.E2M1: 6.0, DType.E4M3: 448.0, DType.E5M2: 57344.0}
named = pytest.mark.parametrize("dtype", PEERS, ids=lambda dtype: dtype.label)


def peer(codes: np.ndarray, dtype: DType) -> np.ndarray:
    """What ml_dtypes reads in codes; its 4-bit types keep one code a byte."""
    return codes.view(PEERS[dtype]).astype(np.float32)


@named
def test_every_code_decodes_to_its_number(dtype: DType) -> None:
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    got = numerics.decode(codes, dtype)
    want = peer(codes, dtype)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == numerics.COMPUTE[dtype]
    np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(want)[want == 0])
    np.testing.assert_array_equal(numerics.load(codes, dtype), got)


@named
def test_every_number_keeps_its_code(dtype: DType) -> None:
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    numbers = numerics.decode(codes, dtype)
    kept = np.isfinite(numbers)
    np.testing.assert_array_equal(numerics.encode(numbers[kept], dtype), codes[kept])


@pytest.mark.parametrize("dtype", LARGEST, ids=lambda dtype: dtype.label)
def test_floats_round_to_the_nearest_and_halves_to_even(dtype: DType) -> None:
    grid = numerics.decode(np.arange(1 << dtype.bits, dtype=np.uint8), dtype)
    finite = np.unique(grid[np.isfinite(grid)]).astype(np.float32)
    points = np.concatenate([finite, (finite[:-1] + finite[1:]) / 2])
    points = np.concatenate([points, *(np.nextafter(points, np.float32(side)) for side in (-np.inf, np.inf))])
    points = points[np.abs(points) <= LARGEST[dtype]]
    np.testing.assert_array_equal(numerics.encode(points, dtype), points.astype(PEERS[dtype]).view(np.uint8))


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        (DType.E4M3, [0x7E, 0xFE, 0x7E, 0x7F, 0x00, 0x80]),
        (DType.E5M2, [0x7B, 0xFB, 0x7B, 0x7E, 0x00, 0x80]),
        (DType.E2M1, [0x07, 0x0F, 0x07, 0x00, 0x00, 0x08]),
        (DType.I4, [0x07, 0x08, 0x07, 0x00, 0x00, 0x00]),
        (DType.U4, [0x0F, 0x00, 0x0F, 0x00, 0x00, 0x00]),
        (DType.U2, [0x03, 0x00, 0x03, 0x00, 0x00, 0x00]),
        (DType.E8M0, [0xFF, 0xFF, 0xDC, 0xFF, 0xFF, 0xFF]),
    ],
)
def test_what_is_too_large_saturates(dtype: DType, want: list[int]) -> None:
    values = np.float32([np.inf, -np.inf, 1e28, np.nan, 0.0, -0.0])
    assert numerics.encode(values, dtype).tolist() == want


def test_scales_take_the_nearer_power_of_two() -> None:
    values = np.float32([1.0, 1.49, 1.5, 3.0, 5.9, 0.75, 2.0**-127, 2.0**-130, 3.3e38])
    peers = values.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    np.testing.assert_array_equal(numerics.encode(values, DType.E8M0)[:-2], peers[:-2])
    assert numerics.encode(values, DType.E8M0)[-2:].tolist() == [0, 0xFE]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("count", [0, 1, 3, 8, 13])
def test_codes_in_bytes(bits: int, count: int) -> None:
    """The first code in the low bits, and each row from a fresh byte."""
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (3, count)).astype(np.uint8)
    packed = numerics.pack_codes(codes, bits)
    assert packed.shape == (3, -(-count * bits // 8))
    for row, want in zip(packed, codes, strict=True):
        number = int.from_bytes(row.tobytes(), "little")
        assert [number >> bits * place & (1 << bits) - 1 for place in range(count)] == want.tolist()
    np.testing.assert_array_equal(numerics.unpack_codes(packed, bits)[:, :count], codes)


@pytest.mark.parametrize("dtype", list(DType), ids=lambda dtype: dtype.label)
def test_unpacking_is_loading(dtype: DType) -> None:
    data = np.random.default_rng(7).integers(0, 256, (2, 16)).astype(np.uint8)
    count = numerics.elements(16, dtype)
    got = numerics.unpack(data.astype(np.int32), dtype)
    assert got.shape == (2, count) and got.dtype == numerics.COMPUTE[dtype]
    if not dtype.packed:
        np.testing.assert_array_equal(got, numerics.load(data.view(dtype.storage), dtype))
    else:
        np.testing.assert_array_equal(numerics.pack(got, dtype), data)
    assert numerics.elements(3, DType.F16) is None
