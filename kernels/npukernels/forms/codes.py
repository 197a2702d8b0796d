"""Forms of the kernels over weights that stay codes."""

import numpy as np

from npuc import tile as t
from npukernels.codes import Row
from npukernels.forms.form import TILE, Form, Values

K = 64
FLOATS = (t.f16, t.f32)


def _packed(row: Row, count: int) -> tuple[Values, Values]:
    """Random rows of a form as bytes [count, row.nbytes], and the numbers that they stand for, float64 [count, K]."""
    random = np.random.default_rng(5)
    top = 1 << row.codes.bits
    codes = random.integers(0, top, (count, row.k))
    signed = np.where(codes >= top // 2, codes - top, codes) if row.codes in (t.i4, t.i8) else codes
    scales = (random.integers(1, 9, (count, row.groups)) / 64).astype(row.scales.storage)
    shifts = np.zeros((count, row.groups))
    held = np.zeros((count, row.nbytes), np.uint8)
    bytes_ = codes if row.codes.bits == 8 else codes[:, 0::2] | codes[:, 1::2] << 4
    held[:, : row.k * row.codes.bits // 8] = bytes_
    held[:, row.code_bytes : row.code_bytes + row.scale_bytes] = scales.view(np.uint8).reshape(count, -1)
    if row.shifts is not None:
        shifts = (random.integers(-8, 9, (count, row.groups)) / 16).astype(row.shifts.storage)
        first = row.code_bytes + row.scale_bytes
        held[:, first : first + row.groups * row.shifts.nbytes] = shifts.view(np.uint8).reshape(count, -1)
    spread = np.arange(row.k) // row.group
    return held, (signed - row.zero) * scales.astype(np.float64)[:, spread] + shifts.astype(np.float64)[:, spread]


def _ones(row: Row) -> Values:
    """u8 [groups, K / 2]: which places of k each group has, as 4-bit codes."""
    picks = (np.arange(row.k)[None, :] // row.group == np.arange(row.groups)[:, None]).astype(np.uint8)
    return picks[:, 0::2] | picks[:, 1::2] << 4


def _matmul(words: str, row: Row, **params: bool) -> Form:
    def make(dtype: t.DType, m: int) -> t.Example:
        held, numbers = _packed(row, 24)
        arrays = [t.dense(dtype, (m, K)), held, t.dense(dtype, (m, 24))]
        if row.shifts is not None and not params:
            arrays.append(_ones(row))
        tolerance = 2.0**-7 if dtype is t.f16 else None
        sizes = {"bm": TILE, "bn": 16, "row": row, **params}
        return t.Example(arrays, sizes, lambda x, *_: x @ numbers.T, tolerance=tolerance)

    return Form("matmul_codes", words, FLOATS, make)


def _silu_gate(gate: t.Tile, up: t.Tile) -> t.Tile:
    return gate * t.sigmoid(gate) * up


def _pair(dtype: t.DType, m: int) -> t.Example:
    row = Row(K, t.u4, 32, 8, t.f16)
    held, numbers = _packed(row, 24)

    def reference(x: Values, *_: Values) -> Values:
        y = x @ numbers.T
        return y / (1.0 + np.exp(-y)) * y

    arrays = (t.dense(dtype, (m, K)), held, held, t.dense(dtype, (m, 24)))
    sizes = {"bm": TILE, "bn": 16, "row": row, "epilogue": _silu_gate}
    return t.Example(arrays, sizes, reference, tolerance=2.0**-6 if dtype is t.f16 else 2.0**-17)


def _gather(dtype: t.DType, n: int) -> t.Example:
    row = Row(K, t.u4, 32, 8, t.f16)
    held, numbers = _packed(row, 12)
    ids = (np.arange(n, dtype=np.int32) * 7) % 13 - 1  # one row in thirteen is -1: outside of the table
    expected = np.where((ids >= 0)[:, None], numbers[np.maximum(ids, 0)], 0.0)
    return t.Example((held, ids, t.dense(dtype, (n, K))), {"bt": TILE, "row": row}, lambda *_: expected)


FORMS = (
    _matmul("int4, scale per output channel", Row(K, t.i4, K, 0, t.f16)),
    _matmul("uint4, scale per group of 32", Row(K, t.u4, 32, 8, t.f16)),
    _matmul("uint4, scale and shift per group", Row(K, t.u4, 32, 0, t.f16, t.f16)),
    _matmul("uint4, dequantised by vector code", Row(K, t.u4, 32, 8, t.f16), widen=True),
    _matmul("int8, scale per output channel", Row(K, t.i8, K, 0, t.f16)),
    _matmul("uint8, scale per group of 32", Row(K, t.u8, 32, 128, t.f16)),
    Form("matmul_codes_pair", "gated MLP, uint4, scale per group", FLOATS, _pair),
    Form("gather_codes", "embedding rows of uint4 codes", FLOATS, _gather),
)
