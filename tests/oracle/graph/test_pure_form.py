"""Real exports as pure functions, normalised, and through the stateful form and back: the exporter's values stay."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from npuc.frontend import check_model, load
from npuc.graph.normalise import normalise
from npuc.graph.state import StateInfo, pairs_to_state, state_to_arguments
from tests.cases import purefn
from tests.support.models import CORPUS, make_case

MODELS = ("llama-torchdyn-op18", "gpt2-torchdyn-op18")
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def session(model: ir.Model) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(ir.to_proto(model).SerializeToString(), options, providers=["CPUExecutionProvider"])


def start(state: StateInfo) -> np.ndarray:
    """The value before the first run. Open extents: 0 along the axis that grows, else the batch, 1."""
    if state.initial is not None:
        return state.initial
    shape = [0 if i == state.growing_axis else max(d, 1) for i, d in enumerate(state.shape)]
    return np.zeros(shape, ir.DataType(state.dtype).numpy())


def run_corpus(name: str, model: ir.Model, states: list[StateInfo]) -> None:
    """Feeds a pure model the prompt and the decode steps of its reference, its own states between them."""
    runner = session(model)
    before = {s.input: start(s) for s in states}
    with np.load(CORPUS / name / "ref.npz") as ref:
        phases = ["prefill", *sorted({k.split("/")[0] for k in ref.files if k.startswith("decode")})]
        assert len(phases) == 5
        for phase in phases:
            ports = ("input_ids", "attention_mask", "position_ids")
            feeds = {port: ref[f"{phase}/in/{port}"] for port in ports} | before
            names = ["logits", *(s.output for s in states)]
            got = dict(zip(names, runner.run(names, feeds), strict=True))
            np.testing.assert_allclose(got["logits"], ref[f"{phase}/out/logits"], **TOLERANCE)
            before = {s.input: got[s.output] for s in states}
        for state in states:
            last = f"{phases[-1]}/out/{state.id.replace('past_key_values', 'present')}"
            np.testing.assert_allclose(before[state.input], ref[last], **TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_pure_form(name):
    loaded = load(CORPUS / name)
    check_model(loaded)
    run_corpus(name, *state_to_arguments(loaded.model))


@pytest.mark.parametrize("name", MODELS)
def test_normalised(name):
    pure, states = state_to_arguments(load(CORPUS / name).model)
    model = normalise(pure)
    assert model.opset_imports[""] == 21
    run_corpus(name, model, states)


@pytest.mark.parametrize("name", MODELS)
def test_stateful_form_and_back(name, tmp_path):
    ir.save(pairs_to_state(load(CORPUS / name).model), tmp_path / "model.onnx")
    loaded = load(tmp_path / "model.onnx")
    check_model(loaded)
    run_corpus(name, *state_to_arguments(loaded.model))


def test_written_form_is_what_an_independent_reader_takes(tmp_path):
    proto = ir.to_proto(pairs_to_state(load(CORPUS / "gpt2-torchdyn-op18").model))
    _, initial, after, ids = purefn.convert(proto)
    assert sorted(ids.values()) == [f"past_key_values.{i}.{kind}" for i in (0, 1) for kind in ("key", "value")]
    assert all(value.shape == (1, 4, 0, 16) for value in initial.values()) and len(after) == 4


def test_assign_before_read(tmp_path):
    path, expected = make_case("a11_assign_first", tmp_path)
    loaded = load(path)
    check_model(loaded)
    pure, states = state_to_arguments(loaded.model)
    model = normalise(pure)
    feeds = {"x": expected["in__x"]} | {s.input: start(s) for s in states}
    names = [key[5:] for key in expected if key.startswith("out__")]
    assert len(names) == 4
    for name, got in zip(names, session(model).run(names, feeds), strict=True):
        np.testing.assert_allclose(got, expected[f"out__{name}"], rtol=1e-4, atol=1e-4)


def test_stateful_decoder(tmp_path):
    """Greedy tokens of each prompt, fed at once and then one by one."""
    path, expected = make_case("a10_state_decoder", tmp_path)
    loaded = load(path)
    check_model(loaded)
    pure, states = state_to_arguments(loaded.model)
    assert [s.id for s in states] == ["cache.0.key", "cache.0.value", "cache.1.key", "cache.1.value"]
    runner = session(normalise(pure))
    names = ["logits", *(s.output for s in states)]
    for i in (0, 3, 6):
        ids, done, tokens = expected[f"prompt_{i}"].tolist(), 0, []
        before = {s.input: start(s) for s in states}
        while len(tokens) < len(expected[f"tokens_{i}"]):
            feeds = {
                "input_ids": np.array([ids], np.int64),
                "attention_mask": np.ones((1, done + len(ids)), np.int64),
                "position_ids": np.arange(done, done + len(ids), dtype=np.int64)[None],
            }
            logits, *values = runner.run(names, feeds | before)
            before = {s.input: value for s, value in zip(states, values, strict=True)}
            done += len(ids)
            ids = [int(logits[0, -1].argmax())]
            tokens += ids
        assert tokens == expected[f"tokens_{i}"].tolist()
