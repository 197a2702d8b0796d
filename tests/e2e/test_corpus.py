"""Real exported models from file to logits, against the references that onnxruntime gave for them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.models import CORPUS, answer, compile_to, cosine, reference, stateful_form

MODELS = ("llama-torchdyn-op18", "gpt2-torchdyn-op18")
SIZES = {"max_prompt_len": 12, "min_response_len": 8, "capacities": (11, 20)}


@pytest.mark.parametrize("chunk", [4, 9])
@pytest.mark.parametrize("form", ["pairs", "stateful"])
@pytest.mark.parametrize("name", MODELS)
def test_f32_agrees_with_the_reference(name, form, chunk, tmp_path):
    model = CORPUS / name / "model.onnx"
    if form == "stateful":
        model = stateful_form(model, tmp_path / "stateful")
    prompt, fed, want_prompt, want_step = reference(name)
    got = answer(compile_to(tmp_path / "m.blob", model, precision="f32", chunk=chunk, **SIZES), prompt, fed)
    np.testing.assert_allclose(got.prompt, want_prompt, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(got.step, want_step, rtol=1e-3, atol=1e-3)
    assert got.tokens[: len(fed)] == fed


@pytest.mark.parametrize("chunk", [4, 9])
@pytest.mark.parametrize("form", ["pairs", "stateful"])
@pytest.mark.parametrize("name", MODELS)
def test_f16_keeps_the_direction_of_every_row(name, form, chunk, tmp_path):
    model = CORPUS / name / "model.onnx"
    if form == "stateful":
        model = stateful_form(model, tmp_path / "stateful")
    prompt, fed, want_prompt, want_step = reference(name)
    got = answer(compile_to(tmp_path / "m.blob", model, chunk=chunk, **SIZES), prompt, fed)
    assert cosine(got.prompt, want_prompt).min() >= 0.999
    assert cosine(got.step, want_step).min() >= 0.999
    assert got.tokens[: len(fed)] == fed


@pytest.mark.parametrize("name", MODELS)
def test_chunks_and_forms_give_the_same_bits(name, tmp_path):
    """exact mode: how the prompt is cut, and how states are written in the file, must not show in a single bit."""
    prompt, fed, *_ = reference(name)
    pairs = CORPUS / name / "model.onnx"
    first = answer(compile_to(tmp_path / "a.blob", pairs, chunk=4, **SIZES), prompt, fed)
    for label, model, chunk in (("b", pairs, 9), ("c", stateful_form(pairs, tmp_path / "s"), 3)):
        other = answer(compile_to(tmp_path / f"{label}.blob", model, chunk=chunk, **SIZES), prompt, fed)
        assert np.array_equal(first.prompt, other.prompt)
        assert np.array_equal(first.step, other.step)
