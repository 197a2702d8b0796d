"""Caches that drop old rows, caches of a fixed size, position biases, sinks, and graphs with a fixed number of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import npurt
from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions, compile_to_blob
from npuc.frontend.errors import ModelRefused
from npurt.llm import Request, Session
from tests.support.models import CORPUS, answer, compile_to, cosine, reference

WINDOW, FIXED, SLOPES = "mistral-torchdyn-op18-winkv", "qwen3-hfx-static-op20", "bloom-optimum-op18"
SIZES = {"max_prompt_len": 12, "capacities": (11, 20)}


@pytest.mark.parametrize(
    ("name", "chunk"), [(WINDOW, 1), (WINDOW, 4), (WINDOW, 9), (FIXED, 1), (SLOPES, 3), (SLOPES, 9)]
)
def test_reference(name, chunk, tmp_path):
    """f32 within the reference's tolerance, f16 by direction."""
    prompt, fed, want_prompt, want_step = reference(name)
    model = CORPUS / name / "model.onnx"
    exact = answer(compile_to(tmp_path / "f32.npu", model, precision="f32", chunk=chunk, **SIZES), prompt, fed)
    np.testing.assert_allclose(exact.prompt, want_prompt, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(exact.step, want_step, rtol=1e-3, atol=1e-3)
    assert exact.tokens[: len(fed)] == fed
    half = answer(compile_to(tmp_path / "f16.npu", model, precision="f16", chunk=chunk, **SIZES), prompt, fed)
    assert min(cosine(half.prompt, want_prompt).min(), cosine(half.step, want_step).min()) >= 0.999
    assert half.tokens[: len(fed)] == fed


@pytest.mark.parametrize("name", [WINDOW, SLOPES])
def test_chunks_give_the_same_bits(name, tmp_path):
    prompt, fed, *_ = reference(name)
    model = CORPUS / name / "model.onnx"
    first, other = (
        answer(compile_to(tmp_path / f"{chunk}.npu", model, chunk=chunk, **SIZES), prompt, fed) for chunk in (4, 9)
    )
    assert np.array_equal(first.prompt, other.prompt) and np.array_equal(first.step, other.step)


@pytest.mark.parametrize("name", [WINDOW, FIXED, SLOPES])
def test_many_steps_agree_with_onnxruntime(name):
    """The window has long moved on, the fixed cache is nearly full, and the bias reaches far."""
    options = CompileOptions(precision="f32", max_prompt_len=8, capacities=(16, 28))
    result = check(Check(CORPUS / name / "model.onnx", options, prompt=[3, 1, 4, 1, 5, 9, 2, 6], tokens=18))
    assert result.agrees


def test_a_fixed_cache_bounds_the_context(tmp_path):
    model = CORPUS / FIXED / "model.onnx"
    summary = compile_to_blob(model, tmp_path / "m.npu", CompileOptions(chunk=4, min_response_len=20))
    assert summary is not None
    assert [line for line in summary.report if line.startswith(("limited", "chunk"))] == [
        "limited to 32 tokens (its cache of a fixed size has): prompts up to 12, then 20 new tokens or more",
        "chunk 4: the graph was exported with 1 rows a run: 1 is used",
    ]
    image = npurt.load(tmp_path / "m.npu")
    result = Session(image, npurt.Device(image)).generate([7] * 12, Request(eos=())).finish()
    assert (len(result.tokens), str(result.stop_reason)) == (32 - 12 + 1, "context_full")
    assert {state.id.rpartition(".")[2] for state in image.metadata.states} == {"keys", "values"}


def edited(name: str, path: Path, **arrays: np.ndarray) -> Path:
    """The corpus model with other contents of some initializers."""
    model = onnx.load(CORPUS / name / "model.onnx")
    for tensor in model.graph.initializer:
        if tensor.name in arrays:
            tensor.CopyFrom(numpy_helper.from_array(arrays.pop(tensor.name), tensor.name))
    assert not arrays
    onnx.save(model, path / "edited.onnx")
    return path / "edited.onnx"


def test_a_cache_shorter_than_its_window_is_refused(tmp_path):
    """Four rows are kept, and the mask would show eight: what a row sees depends on how the tokens came."""
    with pytest.raises(ModelRefused, match="the model keeps 4 rows of its cache, but its mask hides none"):
        compile_to(tmp_path / "m.npu", edited(WINDOW, tmp_path, val_153=np.array(9, np.int64)), chunk=4, **SIZES)


def test_a_fixed_cache_that_is_not_written_in_order_is_refused(tmp_path):
    model = onnx.load(CORPUS / FIXED / "model.onnx")
    place, write = next((i, n) for i, n in enumerate(model.graph.node) if n.op_type == "ScatterND")
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "one"))
    model.graph.node.insert(place, onnx.helper.make_node("Add", [write.input[1], "one"], ["late"], name="late"))
    write.input[1] = "late"
    onnx.save(model, tmp_path / "late.onnx")
    with pytest.raises(ModelRefused) as error:
        compile_to(tmp_path / "m.npu", tmp_path / "late.onnx")
    assert error.value.problems == (
        "state 'past_key_values.layers.0.keys': with 0 past rows its cache is not written at [0], the slots of the new "
        "ones",
    )


def test_a_counter_that_counts_something_else_is_refused(tmp_path):
    with pytest.raises(ModelRefused, match="is an integer that each run replaces, but does not count the tokens"):
        compile_to(tmp_path / "m.npu", edited(FIXED, tmp_path, val_1=np.array(2, np.int64)))


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_a_graph_with_several_fixed_rows(precision, tmp_path):
    """Four rows in every run: the chunk is theirs, and a single token is the first of four."""
    model = onnx.load(CORPUS / "llama-torchdyn-op18" / "model.onnx")
    sizes = {"batch": 1, "sequence": 4}
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    del model.graph.value_info[:]
    onnx.save(model, tmp_path / "fixed.onnx")
    options = CompileOptions(precision=precision, chunk=9, **SIZES)
    summary = compile_to_blob(tmp_path / "fixed.onnx", tmp_path / "m.npu", options)
    assert summary is not None
    assert [line for line in summary.report if line.startswith("chunk")] == [
        "chunk 9: the graph was exported with 4 rows a run: 4 is used"
    ]
    prompt, fed, want_prompt, want_step = reference("llama-torchdyn-op18")
    got = answer(tmp_path / "m.npu", prompt, fed)
    assert got.tokens[: len(fed)] == fed
    if precision == "f32":
        np.testing.assert_allclose(got.prompt, want_prompt, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(got.step, want_step, rtol=1e-3, atol=1e-3)
    assert min(cosine(got.prompt, want_prompt).min(), cosine(got.step, want_step).min()) >= 0.999


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_sinks_of_group_query_attention(precision, tmp_path):
    model = onnx.load(CORPUS / "llama-genai-fp32" / "model.onnx")
    layers = [node for node in model.graph.node if node.op_type == "GroupQueryAttention"]
    for number, node in enumerate(layers):
        heads = next(a.i for a in node.attribute if a.name == "num_heads")
        sinks = np.linspace(-2, 3 + number, heads).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(sinks, f"sinks.{number}"))
        node.input[:] = [*node.input[:11], *[""] * (11 - len(node.input)), f"sinks.{number}"]
    onnx.save(model, tmp_path / "sinks.onnx")
    options = CompileOptions(precision=precision, chunk=3, dims={"kv_cache_dim": 16}, **SIZES)
    result = check(Check(tmp_path / "sinks.onnx", options, prompt=[3, 1, 4, 1, 5, 9, 2], tokens=6))
    assert result.agrees and len(layers) == 2
