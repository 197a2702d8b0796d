"""Fast mode against exact mode on whole models, and link passes against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npurt
from npurt.fast import FastDevice, LinkOptions
from npurt.llm import Request, Session
from tests.support.models import CORPUS, compile_to, make_case, reference

DEFAULT_MODEL = Path(__file__).parents[2] / "npuc" / "data" / "default_model"
CHOICES = [LinkOptions(a, j, g) for a, j, g in ((False, False, False), (True, False, False), (False, True, False),
                                                 (True, True, False), (True, True, True))]  # fmt: skip
TOLERANCE = {"f32": 2e-5, "f16": 4e-2}
"""Of the largest logit for float32; absolute for f16, where products that vector code reads, scores among them, are not
rounded, and a store may round the other way."""


def logits(image, device, prompt, fed):
    """Of each prompt position and after each fed token."""
    request = Request(max_new_tokens=len(fed) + 1, force_ids=tuple(fed), collect_logits=True, eos=())
    result = Session(image, device).generate(list(prompt), request).finish()
    return np.concatenate([result.prompt_logits, result.step_logits])


def check_choices(image, precision, prompt, fed):
    """All choices of passes are near exact mode, and nearer to each other."""
    wanted = logits(image, npurt.Device(image), prompt, fed)
    found = []
    for options in CHOICES:
        device = FastDevice(image, options)
        found.append(logits(image, device, prompt, fed))
        assert device.notes == []
        error = np.abs(found[-1] - wanted).max()
        assert error <= TOLERANCE[precision] * (np.abs(wanted).max() if precision == "f32" else 1), options
    for other in found[1:]:
        assert np.abs(other - found[0]).max() <= TOLERANCE[precision] * np.abs(wanted).max()
    assert (found[-1].argmax(-1) == wanted.argmax(-1)).mean() > 0.99


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", ["llama-torchdyn-op18", "gpt2-torchdyn-op18"])
def test_corpus(name, precision, tmp_path):
    prompt, generated, _, _ = reference(name)
    options = {"chunk": 4, "max_prompt_len": 16, "capacities": (12, 40)}
    image = npurt.load(compile_to(tmp_path / "m.npu", CORPUS / name / "model.onnx", precision=precision, **options))
    check_choices(image, precision, prompt, generated)


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("chunk", [1, 3, 4, 8])
def test_the_embedded_model(chunk, precision, tmp_path):
    options = {"chunk": chunk, "max_prompt_len": 16, "capacities": (14, 40)}
    image = npurt.load(compile_to(tmp_path / "m.npu", DEFAULT_MODEL, precision=precision, **options))
    check_choices(image, precision, [5, 17, 100, 3, 9, 44, 2, 61, 77, 30], [5, 17, 100, 3, 9, 44, 2])


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize(
    "name",
    ["a02_padded_rows", "a05_norm_half", "a06_old_softmax", "a07_slice_ends", "a08_tied_vocab", "a11_assign_first"],
)
def test_graph_cases(name, precision, tmp_path):
    model, expected = make_case(name, tmp_path)
    image = npurt.load(compile_to(tmp_path / "m.npu", model, precision=precision))
    inputs = {key[4:]: value for key, value in expected.items() if key.startswith("in__")}
    exact, fast = npurt.Device(image), FastDevice(image)
    for _ in range(2):  # states live on
        wanted, got = exact.run("main", inputs), fast.run("main", inputs)
        for key, want in wanted.items():
            assert (got[key].dtype, got[key].shape) == (want.dtype, want.shape)
            if precision == "f16" and want.dtype.kind in "iu":
                continue  # an argmax may flip between two near logits
            atol = 1e-5 if precision == "f32" else 1e-2 * max(float(np.abs(want).max(initial=0)), 1.0)
            np.testing.assert_allclose(got[key], want, rtol=1e-5, atol=atol, err_msg=key)
        for state in image.metadata.states:
            np.testing.assert_allclose(fast.state(state.id), exact.state(state.id), rtol=1e-2, atol=1e-2)
    assert fast.notes == []


@pytest.mark.parametrize("name", ["a01_prompt_boundary", "a03_partial_rope", "a10_state_decoder"])
def test_tokens_of_cases(name, tmp_path):
    model, expected = make_case(name, tmp_path)
    prompts = [value.reshape(-1).tolist() for key, value in sorted(expected.items()) if key.startswith("prompt")]
    limit = max(map(len, prompts), default=8)
    options = {"chunk": 3, "max_prompt_len": limit, "capacities": (limit + 12,), "precision": "f32"}
    image = npurt.load(compile_to(tmp_path / "m.npu", model, **options))
    for prompt in prompts:
        request = Request(max_new_tokens=8, eos=())
        exact, fast = (
            Session(image, device).generate(prompt, request).finish().tokens
            for device in (npurt.Device(image), FastDevice(image))
        )
        assert fast == exact
