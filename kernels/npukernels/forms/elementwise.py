"""Forms of the elementwise and moving kernels, and of the reductions."""

import numpy as np

from npuc import tile as t
from npukernels.forms.form import FLOATS, TILE, Form

WIDTH = 20
BLOCK = (TILE, WIDTH)


def _gelu(x: t.Tile) -> t.Tile:
    return 0.5 * x * (1.0 + t.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def _unary(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    return t.Example(
        (array, array), {"fn": _gelu, "tile": BLOCK},
        lambda x: 0.5 * x * (1.0 + np.tanh(0.7978845608 * (x + 0.044715 * x**3))),
    )  # fmt: skip


def _binary(dtype: t.DType, n: int) -> t.Example:
    array, row = t.dense(dtype, (n, WIDTH)), t.dense(dtype, (1, WIDTH))
    return t.Example(
        (array, row, array), {"fn": lambda x, y: x * t.sigmoid(y), "tile": BLOCK}, lambda x, y: x / (1.0 + np.exp(-y))
    )


def _select(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    return t.Example(
        (array, array, array), {"fn": lambda x, y: t.where(x > y, x, -y), "tile": BLOCK},
        lambda x, y: np.where(x > y, x, -y),
    )  # fmt: skip


def _integers(dtype: t.DType, n: int) -> t.Example:
    a = np.arange(n * WIDTH, dtype=np.int32).reshape(n, WIDTH) - 100
    return t.Example((a, np.zeros_like(a)), {"fn": lambda x: x * 3 - x % 7, "tile": BLOCK}, lambda x: x * 3 - x % 7)


def _cast(dtype: t.DType, n: int) -> t.Example:
    return t.Example((t.dense(dtype, (n, WIDTH)), t.dense(t.f16, (n, WIDTH))), {"tile": BLOCK}, lambda x: x)


def _copy(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    return t.Example((array, array), {"tile": BLOCK}, lambda x: x)


def _fill(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    return t.Example((array,), {"value": 0.25, "tile": BLOCK}, lambda: np.full((n, WIDTH), 0.25))


def _reduction(op: str) -> Form:
    """One of the operations of `npukernels.reduce` over the last axis."""
    formula = REDUCTIONS[op]
    indices = op.startswith("arg")

    def make(dtype: t.DType, n: int) -> t.Example:
        arrays = (t.dense(dtype, (n, WIDTH)), t.dense(t.i32 if indices else dtype, (n, 1)))
        values = 1.0 + 0.25 * np.random.default_rng(3).standard_normal((n, WIDTH))  # products stay in the range of f16
        held = values.astype(np.float32) if dtype is t.f32 else values.astype(np.float16) if dtype is t.f16 else None
        return t.Example((arrays[0] if held is None else held, arrays[1]), {"op": op, "tile": BLOCK}, formula)

    return Form("reduce", op.replace("_", " of "), FLOATS, make)


REDUCTIONS = {
    "sum": lambda x: x.sum(1, keepdims=True),
    "mean": lambda x: x.mean(1, keepdims=True),
    "max": lambda x: x.max(1, keepdims=True),
    "min": lambda x: x.min(1, keepdims=True),
    "prod": lambda x: x.prod(1, keepdims=True),
    "sum_square": lambda x: (x * x).sum(1, keepdims=True),
    "l1": lambda x: np.abs(x).sum(1, keepdims=True),
    "l2": lambda x: np.sqrt((x * x).sum(1, keepdims=True)),
    "argmax": lambda x: x.argmax(1)[:, None],
    "argmin": lambda x: x.argmin(1)[:, None],
}


def _cumsum(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    return t.Example((array, array), {"axis": 1, "tile": BLOCK}, lambda x: np.cumsum(x, 1))


def _cumsum_from_the_end(dtype: t.DType, n: int) -> t.Example:
    array = t.dense(dtype, (n, WIDTH))
    params = {"axis": 1, "tile": BLOCK, "reverse": True, "exclusive": True}
    return t.Example((array, array), params, lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1] - x)


FORMS = (
    Form("map", "function of one array, here GELU", FLOATS, _unary),
    Form("map", "function of several arrays that broadcast", FLOATS, _binary),
    Form("map", "choice by a condition", FLOATS, _select),
    Form("map", "integers", (t.i32,), _integers),
    Form("copy", "between memories and layouts", (*FLOATS, t.i32, t.i8, t.u8), _copy),
    Form("copy", "to another float type", FLOATS, _cast),
    Form("fill", "one value", FLOATS, _fill),
    *(_reduction(op) for op in REDUCTIONS),
    Form("cumsum", "running sums", FLOATS, _cumsum),
    Form("cumsum", "exclusive, from the end", FLOATS, _cumsum_from_the_end),
)
