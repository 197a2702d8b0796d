"""Forms of the matrix products."""

import numpy as np

from npuc import tile as t
from npukernels.forms.form import FLOATS, TILE, Form, Values

K, N = 40, 24
BLOCKS = {"bm": TILE, "bn": 16, "bk": K}


def _silu(x: t.Tile) -> t.Tile:
    return x * t.sigmoid(x)


def _gate(gate: t.Tile, up: t.Tile) -> t.Tile:
    return _silu(gate) * up


def silu(x: Values) -> Values:
    return x / (1.0 + np.exp(-x))


def _plain(dtype: t.DType, m: int) -> t.Example:
    return t.Example(
        (t.dense(dtype, (m, K)), t.dense(dtype, (N, K)), t.dense(dtype, (m, N))), BLOCKS, lambda x, w: x @ w.T
    )


def _decode(dtype: t.DType, n: int) -> t.Example:
    arrays = (t.dense(dtype, (1, K)), t.dense(dtype, (n, K)), t.dense(dtype, (1, n)))
    return t.Example(arrays, {"bm": 1, "bn": TILE, "bk": K}, lambda x, w: x @ w.T)


def _in_steps(dtype: t.DType, m: int) -> t.Example:
    return t.Example(
        (t.dense(dtype, (m, K)), t.dense(dtype, (N, K)), t.dense(dtype, (m, N))), {**BLOCKS, "bk": 16},
        lambda x, w: x @ w.T,
    )  # fmt: skip


def _bias(dtype: t.DType, m: int) -> t.Example:
    arrays = (t.dense(dtype, (m, K)), t.dense(dtype, (N, K)), t.dense(dtype, (m, N)), t.dense(t.f32, (N, 2)))
    return t.Example(arrays, BLOCKS, lambda x, w, table: x @ w.T * table[:, 0] + table[:, 1])


def _onto(dtype: t.DType, m: int) -> t.Example:
    sums = t.dense(dtype, (m, N))
    return t.Example(
        (t.dense(dtype, (m, K)), t.dense(dtype, (N, K)), sums, sums), BLOCKS, lambda x, w, base: base + x @ w.T
    )


def _epilogue(dtype: t.DType, m: int) -> t.Example:
    arrays = (t.dense(dtype, (m, K)), t.dense(dtype, (N, K)), t.dense(dtype, (m, N)))
    return t.Example(arrays, {**BLOCKS, "epilogue": _silu}, lambda x, w: silu(x @ w.T))


def _pair(dtype: t.DType, m: int) -> t.Example:
    weights = t.dense(dtype, (N, K))
    arrays = (t.dense(dtype, (m, K)), weights, weights, t.dense(dtype, (m, N)))
    return t.Example(arrays, {**BLOCKS, "epilogue": _gate}, lambda x, gate, up: silu(x @ gate.T) * (x @ up.T))


def _bmm_nk(dtype: t.DType, m: int) -> t.Example:
    arrays = (t.dense(dtype, (3, m, K)), t.dense(dtype, (3, N, K)), t.dense(dtype, (3, m, N)))
    return t.Example(
        arrays, {"bb": 2, "bm": TILE, "bn": N, "scale": 0.5}, lambda a, b: 0.5 * np.einsum("bmk,bnk->bmn", a, b)
    )


def _bmm_kn(dtype: t.DType, m: int) -> t.Example:
    arrays = (t.dense(dtype, (3, m, K)), t.dense(dtype, (3, K, N)), t.dense(dtype, (3, m, N)))
    return t.Example(arrays, {"bb": 2, "bm": TILE, "bn": N}, lambda a, b: a @ b)


FORMS = (
    Form("matmul", "x w^T", FLOATS, _plain),
    Form("matmul", "one row, decode", FLOATS, _decode),
    Form("matmul", "in steps along K, summed on-chip", FLOATS, _in_steps),
    Form("matmul", "epilogue function, here SiLU", FLOATS, _epilogue),
    Form("matmul_onto", "added to a value", FLOATS, _onto),
    Form("matmul_bias", "scale and bias per output channel", FLOATS, _bias),
    Form("matmul_pair", "gated MLP: SiLU(x w0^T) * (x w1^T)", FLOATS, _pair),
    Form("bmm_nk", "batched, b[B, N, K], scaled", FLOATS, _bmm_nk),
    Form("bmm_kn", "batched, b[B, K, N]", FLOATS, _bmm_kn),
)
