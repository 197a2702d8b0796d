"""Forms of the kernels over whole rows: softmax, norms, rotary embedding, rows by number."""

import numpy as np

from npuc import tile as t
from npukernels.forms.form import FLOATS, TILE, Form, Values

WIDTH = 20
BLOCK = (TILE, WIDTH)
EPS = 1e-5
HEADS, DEPTH = 3, 16


def softmax_of(x: Values) -> Values:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _softmax(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    return t.Example((array, array), {"tile": BLOCK}, softmax_of)


def _log_softmax(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    return t.Example((array, array), {"tile": BLOCK, "log": True}, lambda x: np.log(softmax_of(x)))


def _unit(x: Values) -> Values:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)


def _rmsnorm(dtype: t.DType, n: int) -> t.Example:
    array, weight = t.dense(dtype, (n, WIDTH)), t.dense(dtype, (WIDTH,))
    return t.Example((array, weight, array), {"eps": EPS, "tile": BLOCK}, lambda x, w: _unit(x) * w)


def _rmsnorm_of_sum(dtype: t.DType, n: int) -> t.Example:
    array, weight = t.dense(dtype, (n, WIDTH)), t.dense(dtype, (WIDTH,))
    return t.Example(
        (array, weight, array, array, array), {"eps": EPS, "tile": BLOCK},
        lambda x, w, residual: (_unit(x + residual) * w, x + residual), tolerance=None if dtype is t.f32 else 2.0**-4,
    )  # fmt: skip


def _centred(x: Values) -> Values:
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c * c).mean(-1, keepdims=True) + EPS)


def _layernorm(dtype: t.DType, n: int) -> t.Example:
    array, row = t.dense(dtype, (n, WIDTH)), t.dense(dtype, (WIDTH,))
    return t.Example((array, row, row, array), {"eps": EPS, "tile": BLOCK}, lambda x, w, b: _centred(x) * w + b)


def _layernorm_plain(dtype: t.DType, n: int) -> t.Example:
    array, row = t.dense(dtype, (n, WIDTH)), t.dense(dtype, (WIDTH,))
    return t.Example((array, row, array), {"eps": EPS, "tile": BLOCK}, lambda x, w: _centred(x) * w)


def _rotated(interleaved: bool, width: int) -> Form:
    """Rotary embedding over the first `width` features of each head."""

    def reference(x: Values, cos: Values, sin: Values) -> Values:
        out = x.copy()
        first = np.s_[..., 0:width:2] if interleaved else np.s_[..., : width // 2]
        second = np.s_[..., 1:width:2] if interleaved else np.s_[..., width // 2 : width]
        out[first] = x[first] * cos - x[second] * sin
        out[second] = x[second] * cos + x[first] * sin
        return out

    def make(dtype: t.DType, n: int) -> t.Example:
        heads, table = t.dense(dtype, (HEADS, n, DEPTH)), t.dense(dtype, (n, width // 2))
        params = {"rotary_dim": width, "interleaved": interleaved, "bh": 2, "bc": TILE}
        return t.Example((heads, table, table, heads), params, reference)

    pairs = "neighbouring pairs" if interleaved else "half-split pairs"
    return Form("rotary", pairs + ("" if width == DEPTH else f", the first {width} features of {DEPTH}"), FLOATS, make)


def _gather(dtype: t.DType, n: int) -> t.Example:
    ids = (np.arange(n, dtype=np.int32) * 7) % 13 - 1  # one row in thirteen is -1: outside of the table
    return t.Example(
        (t.dense(dtype, (12, WIDTH)), ids, t.dense(dtype, (n, WIDTH))), {"bt": TILE},
        lambda table, rows: np.where((rows >= 0)[:, None], table[np.maximum(rows, 0)], 0.0),
    )  # fmt: skip


def _append(dtype: t.DType, n: int) -> t.Example:
    past, valid = 5, max(n - 2, 1)
    return t.Example(
        (t.dense(dtype, (HEADS, n, DEPTH)), np.zeros((HEADS, n + past, DEPTH), dtype.storage)), {"bg": 2},
        lambda new: np.concatenate(
            [np.zeros((HEADS, past, DEPTH)), new[:, :valid], np.zeros((HEADS, n - valid, DEPTH))], 1
        ),
        step={"n_past": past, "n_new": valid},
    )  # fmt: skip


def _step_rows(dtype: t.DType, n: int) -> t.Example:
    past = 4
    return t.Example(
        (t.dense(dtype, (n + 9, WIDTH)), t.dense(dtype, (n, WIDTH))), {}, lambda table: table[past : past + n],
        step={"n_past": past, "n_new": n},
    )  # fmt: skip


FORMS = (
    Form("softmax", "over the last axis", FLOATS, _softmax),
    Form("softmax", "its logarithm", FLOATS, _log_softmax),
    Form("rmsnorm", "over the last axis", FLOATS, _rmsnorm),
    Form("rmsnorm", "of a sum with the residual, which is kept", FLOATS, _rmsnorm_of_sum),
    Form("layernorm", "weight and bias", FLOATS, _layernorm),
    Form("layernorm_plain", "weight alone", FLOATS, _layernorm_plain),
    _rotated(False, DEPTH),
    _rotated(True, DEPTH),
    _rotated(False, 8),
    Form("gather_rows", "embedding rows by number, zeros outside", FLOATS, _gather),
    Form("append_rows", "new rows of a KV cache", FLOATS, _append),
    Form("step_rows", "the rows of a table for the step's positions", FLOATS, _step_rows),
)
