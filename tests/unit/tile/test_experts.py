"""Kernels of mixtures of experts against float64 formulas, and eager against tasks bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from npuc import tile as t
from npukernels import experts
from npurt import open_device
from npurt.exec.interpreter import Actives
from tests.support.kernelblob import kernel_image
from tests.support.kernels import run_both

RNG = np.random.default_rng(3)
Array = np.ndarray


@dataclass(frozen=True)
class Silu:
    """The gated layer of most models."""

    def __call__(self, gate: t.Tile, up: t.Tile | None) -> t.Tile:
        result = gate * t.sigmoid(gate)
        return result if up is None else result * up


@dataclass(frozen=True)
class Case:
    """Arrays of one mixture: T rows, K to F to N columns, k of E experts."""

    x: Array
    indices: Array
    weights: Array
    gate: Array
    up: Array | None
    down: Array
    gate_bias: Array | None
    up_bias: Array | None
    down_bias: Array | None

    def arrays(self, out: type = np.float32) -> list[Array | None]:
        return [*vars(self).values(), np.zeros((len(self.x), self.down.shape[1]), out)]

    def formula(self) -> Array:
        x = self.x.astype(np.float64)
        total = np.zeros((len(x), self.down.shape[1]))
        for row in range(len(x)):
            for e, share in zip(self.indices[row], self.weights[row].astype(np.float64), strict=True):
                if not 0 <= e < len(self.gate):
                    continue
                g = self.gate[e].astype(np.float64) @ x[row] + (0 if self.gate_bias is None else self.gate_bias[e])
                hidden = g / (1 + np.exp(-g))
                if self.up is not None:
                    hidden *= self.up[e].astype(np.float64) @ x[row] + (0 if self.up_bias is None else self.up_bias[e])
                y = self.down[e].astype(np.float64) @ hidden
                total[row] += share * (y + (0 if self.down_bias is None else self.down_bias[e]))
        return total


def case(
    rows: int, k: int = 2, count: int = 5, gated: bool = True, biased: bool = True, dtype: type = np.float32
) -> Case:
    width, depth, columns = 12, 20, 14

    def normal(*shape: int, kind: type = dtype) -> Array:
        return (RNG.standard_normal(shape) * 0.4).astype(kind)

    def bias(columns: int) -> Array | None:
        return normal(count, columns, kind=np.float32) if biased else None

    indices = np.stack([RNG.permutation(count)[:k] for _ in range(rows)]).astype(np.int32)
    return Case(
        normal(rows, width), indices, RNG.uniform(0.1, 1, (rows, k)).astype(np.float32), normal(count, depth, width),
        normal(count, depth, width) if gated else None, normal(count, columns, depth), bias(depth),
        bias(depth) if gated else None, bias(columns),
    )  # fmt: skip


@pytest.mark.parametrize("memory", ["ddr", "cmx"])
@pytest.mark.parametrize(("gated", "biased"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("rows", [1, 3])
def test_chosen_experts(rows: int, gated: bool, biased: bool, memory: str) -> None:
    given = case(rows, gated=gated, biased=biased)
    for bf, bn in ((20, 14), (8, 5)):
        out = run_both(experts.moe_chosen, given.arrays(), memory=memory, activation=Silu(), bf=bf, bn=bn)[-1]
        np.testing.assert_allclose(out, given.formula(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("memory", ["ddr", "cmx"])
@pytest.mark.parametrize(("gated", "biased"), [(True, True), (False, False)])
@pytest.mark.parametrize("skip", [True, False])
def test_all_experts(skip: bool, gated: bool, biased: bool, memory: str) -> None:
    given = case(7, gated=gated, biased=biased)
    for bm, bf, bn in ((7, 20, 14), (3, 8, 5)):
        sizes = {"bm": bm, "bf": bf, "bn": bn}
        out = run_both(
            experts.moe_all, given.arrays(), memory=memory, activation=Silu(), skip=skip, cut=False, **sizes
        )[-1]
        np.testing.assert_allclose(out, given.formula(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kernel", ["moe_chosen", "moe_all"])
def test_half_precision(kernel: str) -> None:
    given = case(4, dtype=np.float16)
    params = (
        {"bf": 20, "bn": 14} if kernel == "moe_chosen" else {"bm": 4, "bf": 20, "bn": 14, "skip": True, "cut": False}
    )
    out = run_both(getattr(experts, kernel), given.arrays(np.float16), activation=Silu(), **params)[-1]
    np.testing.assert_allclose(out, given.formula(), rtol=4e-3, atol=4e-3)


def test_what_other_experts_overflow_to_does_not_leak() -> None:
    """An expert that no row has chosen, and one that only another row has: infinities times a share of 0."""
    given = case(2, k=1)
    given.indices[:] = [[1], [3]]
    given.x[1] *= 1e-3
    given.gate[3] *= 1e30
    given.up[3] *= 1e30  # type: ignore[index]  # row 0 overflows here, row 1 has chosen it
    out = run_both(experts.moe_all, given.arrays(), activation=Silu(), skip=False, cut=False, bm=2, bf=20, bn=14)[-1]
    assert out is not None and np.isfinite(out[0]).all()
    np.testing.assert_allclose(out[0], given.formula()[0], rtol=1e-5, atol=1e-5)


def test_an_expert_without_rows_is_skipped_and_padding_chooses_none(tmp_path: Path) -> None:
    given = case(4, count=6)
    given.indices[:] = [[0, 2], [2, 0], [4, 5], [1, 3]]
    names = ("x", "indices", "weights", "gate", "up", "down", "gate_bias", "up_bias", "down_bias")
    inputs = {name: getattr(given, name) for name in names}
    out = {"out": np.zeros((4, 14), np.float32)}
    params = {"activation": Silu(), "bm": 4, "bf": 20, "bn": 14, "skip": True, "cut": True}
    image = kernel_image(experts.moe_all, inputs, out, tmp_path, rows=4, **params)
    entry = image.entries["main"]
    shown = Actives(entry)
    result = open_device(image, "exact").run("main", inputs, n_new=2, hooks=[shown])["out"]
    np.testing.assert_allclose(result[:2], given.formula()[:2], rtol=1e-5, atol=1e-5)
    products = [task.index for task in entry.tasks if task.table == "dpu"]
    per_expert = shown.active[products][: 6 * 3].reshape(6, 3)  # gate, up and down of each, then the biases' product
    assert per_expert.all(1).tolist() == per_expert.any(1).tolist() == [True, False, True, False, False, False]
    fast = open_device(image, "fast")
    np.testing.assert_allclose(fast.run("main", inputs, n_new=2)["out"][:2], result[:2], rtol=1e-4, atol=1e-4)
    assert not fast.notes  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(1, 9), (5, 7), (2, 3, 8)])
def test_topk_and_argmax(shape: tuple[int, ...]) -> None:
    x = RNG.integers(-3, 3, shape).astype(np.float32)  # with ties
    k, tile = 3, (*(2,) * (len(shape) - 1), shape[-1])
    places = np.argsort(-x, axis=-1, kind="stable")[..., :k].astype(np.int32)
    outputs = [np.zeros(places.shape, np.float32), np.zeros(places.shape, np.int32)]
    _, values, found = run_both(experts.topk, [x, *outputs], tile=tile)
    np.testing.assert_array_equal(found, places)
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, -1))
    assert run_both(experts.topk, [x, None, outputs[1]], tile=tile)[2].tolist() == places.tolist()  # type: ignore[union-attr]
    one = np.zeros((*shape[:-1], 1), np.int32)
    np.testing.assert_array_equal(run_both(experts.argmax, [x, one], tile=tile)[1], x.argmax(-1)[..., None])
    np.testing.assert_array_equal(run_both(experts.argmax, [x, one], tile=tile, least=True)[1], x.argmin(-1)[..., None])


@pytest.mark.parametrize("after", ["softmax", "sum", ""])
@pytest.mark.parametrize("before", [True, False])
def test_routing(before: bool, after: str) -> None:
    x = RNG.standard_normal((5, 9)).astype(np.float32)
    scores = x.astype(np.float64)
    if before:
        scores = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    places = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    want = np.take_along_axis(scores, places, 1)
    if after:
        want = np.exp(want) if after == "softmax" else want
        want = want / want.sum(1, keepdims=True)
    outputs = [np.zeros((5, 3), np.float32), np.zeros((5, 3), np.int32)]
    _, weights, indices = run_both(experts.route, [x, *outputs], before=before, after=after, tile=(2, 9))
    np.testing.assert_array_equal(indices, places)
    np.testing.assert_allclose(weights, want, rtol=1e-5, atol=1e-6)
