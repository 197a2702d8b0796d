"""Attention that no rule takes runs as it is written, over filled slots and zeros; or is refused with the reason."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from npuc.frontend import ModelRefused
from npuc.graph import BuildOptions, build, pipeline
from tests.oracle.graph.stages import StagedModel, session
from tests.support.models import CASES, answer, compile_to

SIZES = BuildOptions(chunk=4, max_prompt_len=8, capacities=(12,))
IDS = np.array([5, 17, 0, 28, 9, 11, 3])
VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "window": {"window": 3},
    "softcap": {"softcap": 2.0},
    "sink and window": {"sink": True, "window": 3, "kv": 1},
}


@pytest.fixture(scope="module")
def tinyllm() -> tuple[Any, Any]:
    """The float64 decoder of the cases and its exporter."""
    sys.path.insert(0, str(CASES))
    try:
        return importlib.import_module("tinyllm"), importlib.import_module("tinyllm_onnx")
    finally:
        sys.path.remove(str(CASES))


@pytest.fixture
def no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline without its rule of attention."""
    steps = tuple(step for step in pipeline.ENTRY_STEPS if step.name != "attention")
    monkeypatch.setattr(pipeline, "ENTRY_STEPS", steps)


@pytest.mark.parametrize("name", list(VARIANTS))
@pytest.mark.usefixtures("no_rule")
def test_variant_agrees_with_the_formula(name: str, tinyllm: tuple[Any, Any], tmp_path: Path) -> None:
    """NaN in every slot that no token has filled must not show."""
    model, exporter = tinyllm
    config = {**model.BASE, **VARIANTS[name]}
    weights = model.weights(config)
    onnx.save(exporter.build(config, weights), tmp_path / "model.onnx")
    graphs = build(tmp_path / "model.onnx", SIZES, dump_after=["ports"], dump_dir=tmp_path)
    operators = [node.op_type for node in graphs.entry("prefill").model.graph]
    assert operators.count("PastRows") == 2 * config["layers"] and "Attention" not in operators
    assert any(line.startswith("prefill: plain masked attention over") for line in graphs.report)
    expected = model.forward(config, weights, IDS)
    staged = StagedModel(graphs, tmp_path, "ports", garbage=float("nan"))
    np.testing.assert_allclose(staged.prompt(IDS[:5])[0], expected[:5], rtol=1e-4, atol=1e-5)
    for n_past in (5, 6):
        np.testing.assert_allclose(staged.token(IDS[n_past], n_past)[0, 0], expected[n_past], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.usefixtures("no_rule")
def test_the_device_agrees_with_the_formula(mode: str, tinyllm: tuple[Any, Any], tmp_path: Path) -> None:
    model, exporter = tinyllm
    config = {**model.BASE, "window": 3}
    weights = model.weights(config)
    onnx.save(exporter.build(config, weights), tmp_path / "model.onnx")
    sizes = {"chunk": 4, "max_prompt_len": 8, "capacities": (12,), "precision": "f32"}
    blob = compile_to(tmp_path / "m.blob", tmp_path / "model.onnx", **sizes)
    expected = model.forward(config, weights, IDS)
    got = answer(blob, IDS[:5].tolist(), IDS[5:].tolist(), mode)
    np.testing.assert_allclose(got.prompt, expected[:5], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got.step, expected[5:], rtol=1e-4, atol=1e-4)


def test_scores_joined_with_a_column_that_follows_from_the_queries(tinyllm: tuple[Any, Any], tmp_path: Path) -> None:
    """No rule takes it, for a sink is a constant; the formula is onnxruntime's of the file."""
    model, exporter = tinyllm
    config = {**model.BASE, "sink": True}
    built = exporter.build(config, model.weights(config))
    zeros = {t.name for t in built.graph.initializer if not numpy_helper.to_array(t).any()}
    for node in built.graph.node:
        if node.op_type == "Mul" and zeros & set(node.input):
            node.op_type = "Add"
    onnx.save(built, tmp_path / "model.onnx")
    graphs = build(tmp_path / "model.onnx", SIZES, dump_after=["ports"], dump_dir=tmp_path)
    told = [line for line in graphs.report if line.startswith("prefill: plain")]
    assert len(told) == 1
    assert "joins scores with something that is no constant column per head" in told[0]
    staged = StagedModel(graphs, tmp_path, "ports", garbage=float("nan"))
    ids = IDS[None, :6]
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(6)[None]}
    empty = np.zeros((1, config["kv"], 0, config["dim"]), np.float32)
    feeds |= {port.name: empty for port in built.graph.input if port.name.startswith("past")}
    expected = session(tmp_path / "model.onnx").run(["logits"], feeds)[0][0]
    np.testing.assert_allclose(staged.prompt(IDS[:5])[0], expected[:5], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(staged.token(IDS[5], 5)[0, 0], expected[5], rtol=1e-4, atol=1e-5)


def _before_softmax(graph: onnx.GraphProto, *nodes: onnx.NodeProto) -> None:
    """Puts nodes from "scores" to "new" in front of the first Softmax."""
    place, softmax = next((i, n) for i, n in enumerate(graph.node) if n.op_type == "Softmax")
    for node in nodes:
        node.input[:] = [softmax.input[0] if name == "scores" else name for name in node.input]
    softmax.input[0] = "new"
    for offset, node in enumerate(nodes):
        graph.node.insert(place + offset, node)


def _narrowed(graph: onnx.GraphProto) -> None:
    """Masked scores are rounded to codes, so that hidden ones are no longer far below the others."""
    graph.initializer.extend(
        [numpy_helper.from_array(np.float32(0.1), "scale"), numpy_helper.from_array(np.int8(0), "zero")]
    )
    _before_softmax(
        graph,
        helper.make_node("QuantizeLinear", ["scores", "scale", "zero"], ["codes"], name="narrow"),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["new"], name="widen"),
    )


def _normalised(graph: onnx.GraphProto) -> None:
    """The mean of all scores, those of unfilled slots included, goes off first."""
    _before_softmax(
        graph,
        helper.make_node("ReduceMean", ["scores"], ["mean"], name="mean", axes=[-1], keepdims=1),
        helper.make_node("Sub", ["scores", "mean"], ["new"], name="centre"),
    )


def _unmasked(graph: onnx.GraphProto) -> None:
    """Keys are weighed before any mask."""
    softmax = next(n for n in graph.node if n.op_type == "Softmax")
    masked = next(n for n in graph.node if softmax.input[0] in n.output)
    softmax.input[0] = masked.input[0]


REFUSED: dict[str, tuple[Callable[[onnx.GraphProto], None], str]] = {
    "codes": (_narrowed, "weighs slots that no token has filled: no mask hides them, they hold -12.8"),
    "mean": (_normalised, "node 'mean' (ReduceMean) goes over slots that no token has filled, which hold -3.40282e+38"),
    "no mask": (_unmasked, "weighs slots that no token has filled: no mask hides them, they hold finite numbers"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_would_let_unfilled_slots_show_is_refused(name: str, tinyllm: tuple[Any, Any], tmp_path: Path) -> None:
    model, exporter = tinyllm
    change, reason = REFUSED[name]
    built = exporter.build(model.BASE, model.weights(model.BASE))
    change(built.graph)
    onnx.save(built, tmp_path / "model.onnx")
    with pytest.raises(ModelRefused) as refused:
        build(tmp_path / "model.onnx", SIZES)
    first = refused.value.problems[0]
    assert first.startswith("a cache is read by a node that belongs to no attention which a rule takes, and it cannot")
    assert reason in first
