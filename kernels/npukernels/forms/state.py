"""Forms of the kernels around states and steps: convolutions with a window, rows and masks of the step."""

from typing import Any

import numpy as np

from npuc import tile as t
from npukernels.forms.form import FLOATS, TILE, Form, Values

CHANNELS, TAPS = 20, 4
GROUPS, DEPTH, N_PAST = 3, 16, 5


def _depthwise(words: str, bias: bool = False, stride: int = 1) -> Form:
    def make(dtype: t.DType, n: int) -> t.Example:
        rows = stride * (n - 1) + TAPS
        x, weight = t.dense(dtype, (rows, CHANNELS)), t.dense(dtype, (TAPS, CHANNELS))
        extra = (t.dense(dtype, (CHANNELS,)),) if bias else ()

        def reference(x: Values, weight: Values, *more: Values) -> Values:
            taps = [x[k : k + stride * (n - 1) + 1 : stride] * weight[k] for k in range(TAPS)]
            return sum(taps) + (more[0] if more else 0.0)

        sizes: dict[str, Any] = {"stride": stride, "bt": TILE, "bc": 16}
        return t.Example((x, weight, t.dense(dtype, (n, CHANNELS)), *extra), sizes, reference)

    return Form("depthwise", words, FLOATS, make)


def _last_rows(dtype: t.DType, n: int) -> t.Example:
    valid = max(n - 2, 1)
    arrays = (t.dense(dtype, (n + TAPS - 1, CHANNELS)), t.dense(dtype, (TAPS - 1, CHANNELS)))
    return t.Example(arrays, {"bc": TILE}, lambda x: x[valid : valid + TAPS - 1], step={"n_past": 0, "n_new": valid})


def _past_rows(dtype: t.DType, n: int) -> t.Example:
    array, count = t.dense(dtype, (GROUPS, n, DEPTH)), min(N_PAST, n)

    def reference(past: Values) -> Values:
        return np.where((np.arange(n) < count)[None, :, None], past, 0.0)

    return t.Example((array, array), {"bg": 2, "bk": TILE}, reference, step={"n_past": count, "n_new": 1})


def _seen(rows: int, capacity: int, window: int) -> Values:
    slot = np.arange(capacity + rows)
    position = np.where(slot < capacity, slot, slot - capacity + N_PAST)
    there = (slot >= capacity) | (slot < N_PAST)
    distance = position[None, :] - (N_PAST + np.arange(rows))[:, None]
    return there[None, :] & (distance <= 0) & (distance > -window if window else True)


def _mask(words: str, window: int) -> Form:
    def make(dtype: t.DType, n: int) -> t.Example:
        params = {"capacity": 9, "causal": True, "window": window, "bm": TILE}
        return t.Example(
            (t.dense(t.boolean, (n, 9 + n)),), params, lambda: _seen(n, 9, window), step={"n_past": N_PAST, "n_new": n}
        )

    return Form("step_mask", words, (t.boolean,), make)


def _bias(dtype: t.DType, n: int) -> t.Example:
    slopes = np.linspace(0.1, 0.4, GROUPS, dtype=np.float32)
    slot = np.arange(9 + n)
    position = np.where(slot < 9, slot, slot - 9 + N_PAST)
    distance = position[None, :] - (N_PAST + np.arange(n))[:, None]
    # a slot at or past n_past has no position: its bias is its distance all the same, and the mask drops it
    return t.Example(
        (slopes, t.dense(dtype, (GROUPS, n, 9 + n))), {"capacity": 9, "bm": TILE},
        lambda s: s[:, None, None] * distance, step={"n_past": N_PAST, "n_new": n},
    )  # fmt: skip


FORMS = (
    _depthwise("along rows, a window of 4"),
    _depthwise("along rows, with bias", bias=True),
    _depthwise("along rows, every second row", stride=2),
    Form("last_rows", "the window behind the last valid row", FLOATS, _last_rows),
    Form("past_rows", "the valid rows of a cache, zeros behind them", FLOATS, _past_rows),
    _mask("causal", 0),
    _mask("causal, window", 4),
    Form("step_bias", "ALiBi of the step", FLOATS, _bias),
)
