"""Forms of the kernels over 8-bit codes that a run makes."""

import numpy as np

from npuc import tile as t
from npukernels.forms.form import FLOATS, TILE, Form, Values

K, N = 32, 24


def _codes(shape: tuple[int, ...], dtype: type = np.uint8) -> Values:
    info = np.iinfo(dtype)
    return np.random.default_rng(6).integers(info.min, info.max + 1, shape).astype(dtype)


def _range(dtype: t.DType, n: int) -> t.Example:
    def reference(x: Values) -> tuple[Values, Values]:
        low, high = np.float32(min(x.min(), 0.0)), np.float32(max(x.max(), 0.0))
        scale = np.float32((high - low) / np.float32(255.0))
        return np.full((1, 1), scale), np.full((1, 1), np.clip(np.rint(-low / scale), 0, 255))

    arrays = (t.dense(dtype, (n, K)), t.dense(t.f32, (1, 1)), t.dense(t.u8, (1, 1)))
    return t.Example(arrays, {"bm": TILE}, reference)


def _linear(words: str, with_zero: bool) -> Form:
    def make(dtype: t.DType, m: int) -> t.Example:
        x, w = _codes((m, K)), _codes((N, K), np.int8)
        zero = _codes((1, N), np.int8).astype(np.int32) if with_zero else np.zeros((1, N), np.int32)
        sums = (w.astype(np.int64) - zero.T).sum(1)[None, :].astype(np.int32)
        scale = np.linspace(0.01, 0.03, N, dtype=np.float32)[None, :]
        arrays = [x, np.full((1, 1), 0.5, np.float32), np.full((1, 1), 7, np.uint8), w, scale, sums]
        arrays += [t.dense(dtype, (m, N)), *([zero] if with_zero else [])]

        def reference(x: Values, x_scale: Values, x_zero: Values, w: Values, w_scale: Values, *_: Values) -> Values:
            return (x - x_zero) @ (w - zero.T).T * x_scale * w_scale

        return t.Example(arrays, {"bm": TILE, "bn": 16}, reference)

    return Form("integer_linear", words, (t.f32, t.f16), make)


def _product(dtype: t.DType, m: int) -> t.Example:
    a, b = _codes((2, m, K)), _codes((2, N, K))
    zeros = (np.full((1, 1, 1), 9, np.uint8), _codes((1, N, 1)))
    return t.Example(
        (a, b, np.zeros((2, m, N), np.int32), *zeros), {"bb": 1, "bm": TILE, "bn": 16},
        lambda a, b, a_zero, b_zero: (a - a_zero) @ (b - b_zero).transpose(0, 2, 1),
    )  # fmt: skip


def _valid(dtype: t.DType, n: int) -> t.Example:
    array, count = t.dense(dtype, (2, n, K)), max(n - 3, 1)
    return t.Example(
        (array, array), {"bg": 1, "bk": TILE}, lambda x: np.where((np.arange(n) < count)[None, :, None], x, 0.0),
        step={"n_past": 0, "n_new": count},
    )  # fmt: skip


FORMS = (
    Form("code_range", "scale and zero point of a whole array", FLOATS, _range),
    _linear("codes of the run times int8 weights", with_zero=False),
    _linear("codes of the run times int8 weights with zero points", with_zero=True),
    Form("integer_product", "two arrays of codes, batched", (t.u8,), _product),
    Form("valid_rows", "rows of the step, zeros where they are padding", FLOATS, _valid),
)
