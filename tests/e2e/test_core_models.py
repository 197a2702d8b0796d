"""The five core models: every form, chunk and capacity gives the reference's numbers and the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.models import CORPUS, answer, compile_to, cosine, reference, stateful_form

MODELS = ("llama-torchdyn-op18", "qwen2-torchdyn-op23", "qwen2-optimum-op18", "llama-genai-fp32", "gpt2-torchdyn-op18")
DIMS = {"llama-genai-fp32": {"kv_cache_dim": 16}}


FAST = {("pairs", 3), ("stateful", 8)}  # the rest of the table belongs to `make sweep`
TABLE = [
    pytest.param(form, chunk, marks=() if (form, chunk) in FAST else pytest.mark.slow)
    for form in ("pairs", "stateful")
    for chunk in (1, 3, 4, 8)
]


@pytest.mark.parametrize(("form", "chunk"), TABLE)
@pytest.mark.parametrize("name", MODELS)
def test_reference(name, form, chunk, tmp_path):
    """f32 within the reference's tolerance, f16 by direction; capacity 11 fills up and 20 goes on in mid-answer."""
    model = CORPUS / name / "model.onnx"
    if form == "stateful":
        model = stateful_form(model, tmp_path / "stateful", DIMS.get(name))
    prompt, fed, want_prompt, want_step = reference(name)
    options = {"chunk": chunk, "max_prompt_len": 12, "capacities": (11, 20)}
    exact = answer(compile_to(tmp_path / "f32.npu", model, precision="f32", **options), prompt, fed)
    np.testing.assert_allclose(exact.prompt, want_prompt, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(exact.step, want_step, rtol=1e-3, atol=1e-3)
    assert exact.tokens[: len(fed)] == fed
    half = answer(compile_to(tmp_path / "f16.npu", model, precision="f16", **options), prompt, fed)
    assert min(cosine(half.prompt, want_prompt).min(), cosine(half.step, want_step).min()) >= 0.999
    assert half.tokens[: len(fed)] == fed
    for precision, want in (("f32", exact), ("f16", half)):
        fast = answer(tmp_path / f"{precision}.npu", prompt, fed, mode="fast")
        tolerance = 1e-4 if precision == "f32" else 3e-2
        np.testing.assert_allclose(fast.prompt, want.prompt, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(fast.step, want.step, rtol=tolerance, atol=tolerance)
