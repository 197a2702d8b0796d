"""Caches that keep a window are rings on the device: as many slots as the model keeps, right over many turns."""

from __future__ import annotations

import numpy as np
import pytest

import npurt
from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions, compile_to_blob
from tests.support.decoders import decoder
from tests.support.models import CORPUS, answer, compile_to, reference

MODEL = CORPUS / "mistral-torchdyn-op18-winkv" / "model.onnx"
KEPT = 4


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_many_turns(mode):
    """40 tokens in 4 slots; the last chunk of the prompt is short, and its edge lies inside a turn."""
    options = CompileOptions(precision="f32", chunk=3, max_prompt_len=12, capacities=(48,))
    result = check(Check(MODEL, options, prompt=[3, 1, 4, 1, 5, 9, 2, 6, 5, 3], tokens=30, mode=mode, everything=True))
    assert result.agrees and result.step is None and result.group is None
    assert max(part.max_abs for part in result.parts.values()) < 1e-4


def test_the_device_keeps_no_more_rows_than_the_model(tmp_path):
    options = CompileOptions(chunk=4, max_prompt_len=12, capacities=(11, 20))
    summary = compile_to_blob(MODEL, tmp_path / "m.npu", options)
    assert summary is not None and "4 caches are rings of 4 slots" in summary.report
    states = npurt.load(tmp_path / "m.npu").metadata.states
    assert {(state.kind, state.shape[2]) for state in states} == {("ring", KEPT)}


def test_a_context_that_fits_needs_no_ring(tmp_path):
    """Up to as many tokens as the model keeps a cache has a slot for each."""
    compile_to(tmp_path / "m.npu", MODEL, chunk=2, max_prompt_len=3, capacities=(KEPT,))
    states = npurt.load(tmp_path / "m.npu").metadata.states
    assert {(state.kind, state.shape[2]) for state in states} == {("append", KEPT + 1)}


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_cache_that_is_written_in_a_circle(chunk, mode, tmp_path):
    """TensorScatter, circular: the context has no bound, and 30 tokens go through 6 slots."""
    model = decoder(tmp_path / "model.onnx", "tensor_scatter_circular", slots=6)
    options = CompileOptions(precision="f32", chunk=chunk, max_prompt_len=6, capacities=(11, 40))
    result = check(Check(model, options, prompt=[3, 1, 4, 1, 5], tokens=25, mode=mode))
    assert result.agrees
    compile_to(tmp_path / "m.npu", model, chunk=chunk, max_prompt_len=6, capacities=(11, 40))
    assert {(s.kind, s.shape[2]) for s in npurt.load(tmp_path / "m.npu").metadata.states} == {("ring", 6)}


def test_a_prompt_may_be_longer_than_the_circle(tmp_path):
    """In chunks of any size as token by token."""
    model = decoder(tmp_path / "model.onnx", "tensor_scatter_circular", slots=6)
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]
    sizes = {"max_prompt_len": 14, "capacities": (20,)}
    first, *others = (
        answer(compile_to(tmp_path / f"{chunk}.npu", model, chunk=chunk, **sizes), tokens, []) for chunk in (1, 4, 14)
    )
    for other in others:
        np.testing.assert_array_equal(other.prompt, first.prompt)


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 9])
def test_chunks_of_any_size_give_the_same_bits(chunk, tmp_path):
    prompt, fed, *_ = reference(MODEL.parent.name)
    sizes = {"max_prompt_len": 12, "capacities": (11, 20)}
    first, other = (
        answer(compile_to(tmp_path / f"{size}.npu", MODEL, chunk=size, **sizes), prompt, fed) for size in (4, chunk)
    )
    np.testing.assert_array_equal(other.prompt, first.prompt)
    np.testing.assert_array_equal(other.step, first.step)
