"""What an estimate knows of a model: sizes, weights by shape, caches. No weight is read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from npuc.estimate.formats import FORMATS
from npuc.estimate.speed import chunk_starts, mean, sample, token_steps
from npuc.estimate.subject import Sizes, state_bytes, subject
from npuc.frontend.errors import ModelRefused
from npuc.graph.options import OptionError
from npuc.models import SHAPES
from npuc.models.shape import Windows
from tests.support.graphs import written
from tests.unit.estimate.shapes import MIXED, TINY, UNTIED, hollow, subject_of


def test_the_whole_of_a_7b_model_by_hand(tmp_path: Path):
    found = subject_of(tmp_path / "l", SHAPES["llama2-7b"].shape)
    layer, table = 4 * 4096 * 4096 + 3 * 4096 * 11008, 32000 * 4096
    weights = found.weights
    assert weights.parameters == 2 * table + 32 * (layer + 2 * 4096) + 4096 == 6_738_415_616
    assert weights.active == weights.parameters - table + 4096  # of the table one row
    assert not weights.tied
    tables = 2 * (1152 + 128) * 64  # cos and sin of half a head for each position that a run may have
    assert weights.positions == tables
    assert weights.bytes(FORMATS["f16"]) == 2 * (weights.parameters + tables)
    channels = 32 * (5 * 4096 + 2 * 11008) + 32000
    rest = 2 * (table + 65 * 4096 + tables)
    assert weights.bytes(FORMATS["int8"]) == 32 * layer + table + 8 * channels + rest
    assert weights.bytes(FORMATS["int4"]) == (32 * layer + table) // 2 + 8 * channels + rest
    caches = found.caches
    assert len(caches) == 64
    assert sum(state_bytes(s, 2) // s.shape[2] for s in caches) == 2 * 32 * 4096 * 2
    assert {s.shape[2] for s in caches} == {1152 + 128 - 1}
    assert found.absent == 291


def test_a_tied_table_is_stored_once_as_floats_and_twice_with_codes(tmp_path: Path):
    weights = subject_of(tmp_path / "t", TINY).weights
    assert weights.tied
    assert weights.parameters == TINY.parameters
    matrices = TINY.parameters - 5 * 32
    channels = 64 + 2 * (32 + 2 * 16 + 32 + 2 * 48 + 32)
    floats = 2 * (5 * 32 + weights.positions)
    assert weights.bytes(FORMATS["f16"]) == 2 * matrices + floats
    assert weights.bytes(FORMATS["int4"]) == matrices // 2 + 8 * channels + 2 * 64 * 32 + floats
    untied = subject_of(tmp_path / "u", UNTIED).weights
    assert not untied.tied
    assert untied.parameters == TINY.parameters + 64 * 32


def test_experts(tmp_path: Path):
    found = subject_of(tmp_path / "m", MIXED)
    experts = 2 * 3 * 32 * 24 * 16
    assert found.weights.parameters == MIXED.parameters
    assert found.weights.active == MIXED.parameters - experts + experts * 2 // 16
    (rows, *_) = choices = list(found.plan("prefill").experts.values())
    assert (len(choices), rows.rows, rows.experts, rows.chosen) == (2, 128, 16, 2)
    assert rows.needed == pytest.approx(16 * (1 - (7 / 8) ** 128))
    assert (rows.row_by_row, rows.loaded, rows.macs) == (False, 16, 3 * 32 * 24)
    one = next(iter(found.plan("generate").experts.values()))
    assert (one.row_by_row, one.loaded) == (True, 2)
    assert one.needed == pytest.approx(2.0)


def test_defaults_shrink_to_the_configuration_and_given_sizes_are_noted(tmp_path: Path):
    folder = hollow(tmp_path / "t", TINY)
    found = subject(folder, Sizes())
    assert (found.prompt, found.tokens) == (32, 32)
    assert found.notes == ("the model has 64 positions: 32 of prompt and 32 new ones are taken",)
    found = subject(folder, Sizes(prompt=60))
    assert (found.prompt, found.tokens) == (60, 4)
    assert found.notes == ("the model has 64 positions: 4 new ones behind the prompt are taken",)
    found = subject(folder, Sizes(prompt=100, tokens=20))
    assert (found.prompt, found.tokens, found.graphs.llm and found.graphs.llm.capacities) == (100, 20, (120,))
    assert found.notes == ("100 and 20 tokens are beyond the 64 positions that the model's configuration allows",)
    assert subject(folder, Sizes(prompt=40, tokens=24)).notes == ()


def test_a_table_in_the_graph_bounds_what_is_given_and_shrinks_defaults():
    corpus = Path(__file__).parents[2] / "data" / "corpus" / "gpt2-torchdyn-op18"
    found = subject(corpus, Sizes())
    assert (found.prompt, found.tokens) == (64, 65)
    assert found.notes == ("the model allows 128 tokens: 64 of prompt and 65 new ones are taken",)
    with pytest.raises(OptionError, match=r"beyond the 128 tokens"):
        subject(corpus, Sizes(prompt=200))


def test_a_graph_that_is_no_language_model(tmp_path: Path):
    body = "m (float[n, 8] x) => (float[n, 4] y) <float[8, 4] w = {W}> { y = MatMul (x, w) }"
    path = written(tmp_path, body.replace("W", ", ".join(["1"] * 32)), 21)
    found = subject(path, Sizes(dims={"n": 16}))
    assert found.graphs.llm is None and found.caches == []
    assert found.weights.parameters == 32
    with pytest.raises(ModelRefused, match=r"give it with --dim n=VALUE"):
        subject(path, Sizes())


def test_no_weight_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Gains of norms alone are looked at: they tell a norm from other arithmetic."""
    read: set[str | None] = set()
    whole = ir.LazyTensor.numpy

    def numpy(tensor: ir.LazyTensor) -> np.ndarray:
        read.add(tensor.name)
        return whole(tensor)

    monkeypatch.setattr(ir.LazyTensor, "numpy", numpy)
    shape = replace(TINY, vocab=4096, head_norms=True, windows=Windows(8, 2, 1e4), activation="gelu")
    subject_of(tmp_path / "w", shape)
    gains = {name for name, extents in shape.weights().items() if len(extents) == 1}
    assert read & set(shape.weights()) == gains


def test_steps_of_a_prompt_and_an_answer(tmp_path: Path):
    found = subject_of(tmp_path / "m", MIXED, prompt=200, tokens=40, chunk=64)
    assert list(chunk_starts(found)) == [0, 64, 128, 192]
    assert token_steps(found) == range(200, 239)
    assert sample(range(200, 239)) == [200, 219, 238]
    assert sample(range(5, 6)) == [5]
    assert sample(range(5, 7)) == [5, 6]
    assert (mean([3.0]), mean([3.0, 5.0]), mean([0.0, 2.0, 8.0])) == (3.0, 4.0, 3.0)


def test_a_configuration_with_wrong_positions(tmp_path: Path):
    folder = hollow(tmp_path / "t", TINY)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": "many"}))
    with pytest.raises(ModelRefused, match=r"^config\.json: 'max_position_embeddings' is 'many'"):
        subject(folder, Sizes())
