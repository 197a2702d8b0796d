"""Decoders that differ in one thing each, against a float64 formula of the whole model; and models as variables."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc.graph import BuildOptions, build
from tests.oracle.graph.stages import StagedModel
from tests.support.models import CASES, CORPUS, make_case, stateful_form

VARIANTS: dict[str, dict[str, Any]] = {
    "grouped": {},
    "window": {"window": 3},
    "softcap": {"softcap": 2.0},
    "interleaved": {"interleaved": True},
    "partial": {"rot": 4},
    "partial interleaved": {"rot": 4, "interleaved": True},
    "one key head": {"kv": 1},
    "gain plus one": {"plus_one": True},
    "sink": {"sink": True},
    "sink and window": {"sink": True, "window": 3, "kv": 1},
}
SIZES = BuildOptions(chunk=4, max_prompt_len=8, capacities=(12,))


@pytest.fixture(scope="module")
def tinyllm() -> tuple[Any, Any]:
    """The float64 decoder of the cases and its exporter."""
    sys.path.insert(0, str(CASES))
    try:
        return importlib.import_module("tinyllm"), importlib.import_module("tinyllm_onnx")
    finally:
        sys.path.remove(str(CASES))


@pytest.mark.parametrize("name", list(VARIANTS))
def test_variant_agrees_with_the_formula(name: str, tinyllm: tuple[Any, Any], tmp_path: Path) -> None:
    model, exporter = tinyllm
    config = {**model.BASE, **VARIANTS[name]}
    weights = model.weights(config)
    onnx.save(exporter.build(config, weights), tmp_path / "model.onnx")
    graphs = build(tmp_path / "model.onnx", SIZES, dump_after=["ports"], dump_dir=tmp_path)
    operators = [node.op_type for node in graphs.entry("prefill").model.graph]
    assert operators.count("Attention") == config["layers"]
    assert operators.count("Rotary") == 2 * config["layers"]
    assert "Softmax" not in operators
    ids = np.array([5, 17, 0, 28, 9, 11, 3])
    expected = model.forward(config, weights, ids)
    staged = StagedModel(graphs, tmp_path, "ports", garbage=float("nan"))
    np.testing.assert_allclose(staged.prompt(ids[:5])[0], expected[:5], rtol=1e-4, atol=1e-5)
    for n_past in (5, 6):
        np.testing.assert_allclose(staged.token(ids[n_past], n_past)[0, 0], expected[n_past], rtol=1e-4, atol=1e-5)


def test_graph_that_takes_one_token_a_run(tinyllm: tuple[Any, Any], tmp_path: Path) -> None:
    model, exporter = tinyllm
    weights = model.weights(model.BASE)
    one_token = exporter.build(model.BASE, weights)
    for port in (*one_token.graph.input, *one_token.graph.output):
        for dim in port.type.tensor_type.shape.dim:
            if dim.dim_param == "length":
                dim.dim_value = 1
    onnx.save(one_token, tmp_path / "model.onnx")
    graphs = build(tmp_path / "model.onnx", SIZES, dump_after=["ports"], dump_dir=tmp_path)
    assert "chunk 4: the graph was exported with 1 rows a run: 1 is used" in graphs.report
    assert [entry.rows for entry in graphs.entries] == [1, 1, 1]
    ids = np.array([5, 17, 0, 28, 9, 11, 3])
    staged = StagedModel(graphs, tmp_path, "ports", garbage=float("nan"))
    np.testing.assert_allclose(staged.prompt(ids)[0], model.forward(model.BASE, weights, ids), rtol=1e-4, atol=1e-5)


def test_graph_that_takes_several_tokens_a_run_has_them_in_every_entry(
    tinyllm: tuple[Any, Any], tmp_path: Path
) -> None:
    model, exporter = tinyllm
    several = exporter.build(model.BASE, model.weights(model.BASE))
    for port in (*several.graph.input, *several.graph.output):
        for dim in port.type.tensor_type.shape.dim:
            if dim.dim_param == "length":
                dim.dim_value = 3
    onnx.save(several, tmp_path / "model.onnx")
    graphs = build(tmp_path / "model.onnx", SIZES)
    assert "chunk 4: the graph was exported with 3 rows a run: 3 is used" in graphs.report
    assert [(entry.label, entry.rows) for entry in graphs.entries] == [("prefill", 3), ("generate.12", 3), ("head", 3)]


@pytest.mark.parametrize("case", ["a01_prompt_boundary", "a03_partial_rope", "a10_state_decoder"])
def test_case_gives_its_tokens(case: str, tmp_path: Path) -> None:
    path, expected = make_case(case, tmp_path)
    options = BuildOptions(chunk=4, max_prompt_len=8, capacities=(int(expected["context"]),))
    graphs = build(path, options, dump_after=["ports"], dump_dir=tmp_path)
    prompts = [key for key in expected if key.startswith("prompt_")]
    assert prompts
    for key in prompts:
        prompt, tokens = expected[key], expected[key.replace("prompt", "tokens")].tolist()
        staged = StagedModel(graphs, tmp_path, "ports", garbage=float("nan"))
        found = [int(staged.prompt(prompt)[0, -1].argmax())]
        while len(found) < len(tokens):
            n_past = len(prompt) + len(found) - 1
            found.append(int(staged.token(found[-1], n_past)[0, 0].argmax()))
        assert found == tokens


@pytest.mark.parametrize("name", ["llama-torchdyn-op18", "gpt2-torchdyn-op18"])
def test_stateful_form_gives_the_same_graphs(name: str, tmp_path: Path) -> None:
    options = BuildOptions(chunk=4, max_prompt_len=10, capacities=(16,))
    pairs = build(CORPUS / name, options)
    variables = build(stateful_form(CORPUS / name / "model.onnx", tmp_path), options)
    assert [s.kind for s in variables.states] == ["append"] * 4
    assert [s.shape for s in variables.states] == [s.shape for s in pairs.states]
    for entry in pairs.entries:
        other = variables.entry(entry.label)
        assert [node.op_type for node in entry.model.graph] == [node.op_type for node in other.model.graph]
        assert [port.shape for port in entry.inputs] == [port.shape for port in other.inputs]
