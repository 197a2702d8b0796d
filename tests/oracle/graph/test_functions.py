"""The function bodies of npuc's operators, run by onnxruntime, against their float64 definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from npuc.graph.functions import add_functions
from npuc.graph.fuse.mask import step_mask
from npuc.graph.nodes import DOMAIN
from tests.oracle.graph.stages import session

RANDOM = np.random.default_rng(7)


def run(op_type: str, inputs: list[np.ndarray], attrs: dict[str, Any], dtype: ir.DataType) -> np.ndarray:
    """One node of domain npuc."""
    values = [
        ir.Value(name=f"i{i}", shape=ir.Shape(a.shape), type=ir.TensorType(ir.DataType.from_numpy(a.dtype)))
        for i, a in enumerate(inputs)
    ]
    output = ir.Value(name="y", type=ir.TensorType(dtype))
    node = ir.Node(DOMAIN, op_type, values, ir.convenience.convert_attributes(attrs), outputs=[output])
    model = ir.Model(ir.Graph(values, [output], nodes=[node], opset_imports={"": 21}, name="g"), ir_version=10)
    add_functions(model)
    feeds = {value.name: array for value, array in zip(values, inputs, strict=True)}
    return session(ir.to_proto(model).SerializeToString()).run(None, feeds)[0]


def rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, interleaved: bool) -> np.ndarray:
    y, size = x.astype(np.float64), 2 * cos.shape[1]
    first, second = (
        (slice(0, size, 2), slice(1, size, 2)) if interleaved else (slice(0, size // 2), slice(size // 2, size))
    )
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("size", [8, 4])
def test_rotary(interleaved: int, size: int) -> None:
    x = RANDOM.normal(size=(1, 3, 5, 8)).astype(np.float32)
    cos, sin = (RANDOM.normal(size=(5, size // 2)).astype(np.float32) for _ in range(2))
    found = run("Rotary", [x, cos, sin], {"interleaved": interleaved, "rotary_dim": size}, ir.DataType.FLOAT)
    np.testing.assert_allclose(found, rotated(x, cos, sin, bool(interleaved)), rtol=1e-5, atol=1e-6)


def test_rms_norm_of_half_precision_computes_in_single() -> None:
    x = (RANDOM.normal(size=(2, 3, 16)) * 500).astype(np.float16)
    w = RANDOM.uniform(0.5, 2, 16).astype(np.float16)
    found = run("RMSNorm", [x, w], {"epsilon": 1e-5, "axis": -1}, ir.DataType.FLOAT16)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * w.astype(np.float64)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-3)


def test_step_rows() -> None:
    table = RANDOM.normal(size=(9, 4)).astype(np.float32)
    found = run("StepRows", [table, np.array(5)], {"rows": 3}, ir.DataType.FLOAT)
    assert np.array_equal(found, table[5:8])


@pytest.mark.parametrize("n_past", [0, 2, 6])
@pytest.mark.parametrize(("causal", "window"), [(1, 0), (1, 3), (0, 0)])
def test_step_mask(n_past: int, causal: int, window: int) -> None:
    attrs = {"rows": 3, "capacity": 6, "causal": causal, "window": window}
    found = run("StepMask", [np.array(n_past)], attrs, ir.DataType.BOOL)
    assert np.array_equal(found, step_mask(n_past, 3, 6, bool(causal), window))
    for row in range(3):  # the definition, cell by cell
        for slot in range(6):
            inside = not window or slot > n_past + row - window
            assert found[0, 0, row, slot] == (slot < n_past and inside)
        for slot in range(3):
            assert found[0, 0, row, 6 + slot] == ((not causal or slot <= row) and (not window or slot > row - window))


@pytest.mark.parametrize("n_past", [0, 2, 5])
@pytest.mark.parametrize(("causal", "window"), [(1, 0), (1, 3), (0, 0)])
def test_step_mask_over_the_slots_of_a_fixed_cache(n_past: int, causal: int, window: int) -> None:
    attrs = {"rows": 3, "capacity": 8, "causal": causal, "window": window, "whole": 1}
    found = run("StepMask", [np.array(n_past)], attrs, ir.DataType.BOOL)
    assert np.array_equal(found, step_mask(n_past, 3, 8, bool(causal), window, whole=True))
    for row in range(3):
        for slot in range(8):
            last = n_past + row if causal else n_past + 2
            assert found[0, 0, row, slot] == (slot <= last and (not window or slot > n_past + row - window))


@pytest.mark.parametrize("whole", [0, 1])
def test_step_bias(whole: int) -> None:
    attrs = {"rows": 3, "capacity": 8, "slopes": [0.5, -2.0], "whole": whole}
    found = run("StepBias", [np.array(5)], attrs, ir.DataType.FLOAT)
    slots = np.arange(8) if whole else np.r_[:8, 5:8]
    gap = slots - (5 + np.arange(3)[:, None])
    assert np.array_equal(found[0], np.array([0.5, -2.0])[:, None, None] * gap)


@pytest.mark.parametrize("n_past", [0, 2, 6])
def test_write_rows(n_past: int) -> None:
    past, new = (RANDOM.normal(size=(1, 2, rows, 4)).astype(np.float32) for rows in (9, 3))
    found = run("WriteRows", [past, new, np.array(n_past)], {}, ir.DataType.FLOAT)
    past[:, :, n_past : n_past + 3] = new
    assert np.array_equal(found, past)


@pytest.mark.parametrize("n_past", [0, 3, 6])
@pytest.mark.parametrize(("softcap", "window"), [(0.0, 0), (2.0, 0), (0.0, 2), (1.5, 4)])
@pytest.mark.parametrize("slots", [6, 0])
@pytest.mark.parametrize(
    "of_heads", [{}, {"slopes": [0.5, -0.25, 0.0, 1.0]}, {"sinks": [0.5, -9.0, 40.0, 2.0]}], ids=str
)
def test_attention(n_past: int, softcap: float, window: int, slots: int, of_heads: dict[str, list[float]]) -> None:
    n_past = min(n_past, slots)
    q = RANDOM.normal(size=(1, 4, 3, 8)).astype(np.float32)
    k_new, v_new = (RANDOM.normal(size=(1, 2, 3, d)).astype(np.float32) for d in (8, 5))
    k_past, v_past = (RANDOM.normal(size=(1, 2, slots, d)).astype(np.float32) for d in (8, 5))
    k_past[:, :, n_past:] = v_past[:, :, n_past:] = np.nan
    attrs = {"scale": 0.3, "softcap": softcap, "window": window, **of_heads}
    found = run("Attention", [q, k_new, v_new, k_past, v_past, np.array(n_past)], attrs, ir.DataType.FLOAT)
    k, v = (
        np.repeat(np.concatenate([past[0, :, :n_past], new[0]], 1).astype(np.float64), 2, axis=0)
        for past, new in ((k_past, k_new), (v_past, v_new))
    )
    scores = 0.3 * q[0].astype(np.float64) @ k.transpose(0, 2, 1)
    scores = softcap * np.tanh(scores / softcap) if softcap else scores
    gap = n_past + np.arange(3)[:, None] - np.arange(n_past + 3)
    scores = scores - np.array(of_heads.get("slopes", [0.0]))[:, None, None] * gap
    scores = np.where((gap >= 0) & ((gap < window) if window else True), scores, -np.inf)
    sinks = np.broadcast_to(np.array(of_heads.get("sinks", [-np.inf]))[:, None, None], (4, 3, 1))
    top = np.maximum(scores.max(-1, keepdims=True), sinks)
    weights = np.exp(scores - top)
    expected = weights / (weights.sum(-1, keepdims=True) + np.exp(sinks - top)) @ v
    np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
