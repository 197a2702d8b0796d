"""Forms of top-k and of mixtures of experts."""

import numpy as np

from npuc import tile as t
from npukernels.forms.form import FLOATS, TILE, Form, Values

WIDTH, K = 20, 3
EXPERTS, DEPTH, HIDDEN, COLUMNS = 5, 32, 16, 24


def _topk(dtype: t.DType, n: int) -> t.Example:
    arrays = (t.dense(dtype, (n, WIDTH)), t.dense(dtype, (n, K)), t.dense(t.i32, (n, K)))

    def reference(x: Values) -> tuple[Values, Values]:
        order = np.argsort(-x, 1, kind="stable")[:, :K]
        return np.take_along_axis(x, order, 1), order

    return t.Example(arrays, {"tile": (TILE, WIDTH)}, reference)


def _argmax(dtype: t.DType, n: int) -> t.Example:
    return t.Example(
        (t.dense(dtype, (n, WIDTH)), t.dense(t.i32, (n, 1))), {"tile": (TILE, WIDTH)}, lambda x: x.argmax(1)[:, None]
    )


def _softmax(x: Values) -> Values:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _route(words: str, before: bool, after: str) -> Form:
    def make(dtype: t.DType, n: int) -> t.Example:
        def reference(x: Values) -> tuple[Values, Values]:
            scores = _softmax(x) if before else x
            order = np.argsort(-scores, 1, kind="stable")[:, :K]
            best = np.take_along_axis(scores, order, 1)
            return _softmax(best) if after == "softmax" else best / best.sum(1, keepdims=True), order

        arrays = (t.dense(dtype, (n, WIDTH)), t.dense(t.f32, (n, K)), t.dense(t.i32, (n, K)))
        return t.Example(arrays, {"tile": (TILE, WIDTH), "before": before, "after": after}, reference)

    return Form("route", words, (t.f32,), make)


def _silu_gate(gate: t.Tile, up: t.Tile | None) -> t.Tile:
    assert up is not None
    return gate * t.sigmoid(gate) * up


def _mixture(
    x: Values, indices: Values, weights: Values, gate: Values, up: Values, down: Values, *more: Values
) -> Values:
    out = np.zeros((len(x), COLUMNS))
    for row, (chosen, shares) in enumerate(zip(indices, weights, strict=True)):
        for e, share in zip(chosen, shares, strict=True):
            g, u = gate[e] @ x[row], up[e] @ x[row]
            out[row] += share * (down[e] @ (g / (1.0 + np.exp(-g)) * u) + (more[0][e] if more else 0.0))
    return out


def _experts(kernel: str, words: str, bias: bool = False, **params: object) -> Form:
    def make(dtype: t.DType, n: int) -> t.Example:
        random = np.random.default_rng(4)
        indices = np.stack([random.permutation(EXPERTS)[:2] for _ in range(n)]).astype(np.int32)
        weights = random.random((n, 2)).astype(np.float32)
        gate, down = t.dense(dtype, (EXPERTS, HIDDEN, DEPTH)), t.dense(dtype, (EXPERTS, COLUMNS, HIDDEN))
        biases = (None, None, t.dense(t.f32, (EXPERTS, COLUMNS)) if bias else None)
        arrays = (t.dense(dtype, (n, DEPTH)), indices, weights, gate, gate, down, *biases, t.dense(dtype, (n, COLUMNS)))
        sizes = {"activation": _silu_gate, "bf": 16, "bn": 16, **params}
        tolerance = 2.0**-7 if dtype is t.f16 else 2.0**-17
        return t.Example(arrays, sizes, _mixture, step={"n_past": 0, "n_new": n}, tolerance=tolerance)

    return Form(kernel, words, (t.f16, t.f32), make)


FORMS = (
    Form("topk", "the largest of each row, with their places", FLOATS, _topk),
    _route("softmax over the largest scores of each row", False, "softmax"),
    _route("the largest of a softmax, divided by their sum", True, "sum"),
    Form("argmax", "the place of the largest of each row", FLOATS, _argmax),
    _experts("moe_chosen", "the chosen experts, by indexed loads"),
    _experts("moe_chosen", "the chosen experts, with a bias", bias=True),
    _experts("moe_all", "every expert over all rows", skip=False, cut=False, bm=TILE),
    _experts("moe_all", "every expert that a row has chosen, by a device predicate", skip=True, cut=True, bm=TILE),
)
