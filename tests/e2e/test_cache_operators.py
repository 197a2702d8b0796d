"""Decoders whose caches the operators of the standard and of onnxruntime write: one model, every form, one answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions, compile_to_blob
from npuc.frontend.errors import ModelRefused
from tests.support.decoders import CACHE_FORMS, GROUPS, SIZE, SLOTS, VOCAB, decoder
from tests.support.models import answer, compile_to

PROMPT, FED = [3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 8, 9, 7, 9, 3]
SIZES = {"max_prompt_len": 9, "capacities": (11, 20)}


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("form", CACHE_FORMS)
def test_every_form_agrees_with_onnxruntime(form, chunk, tmp_path):
    model = decoder(tmp_path / "model.onnx", form)
    result = check(Check(model, CompileOptions(precision="f32", chunk=chunk, **SIZES), prompt=PROMPT, tokens=9))
    assert result.agrees
    assert max(part.max_abs for part in result.parts.values()) < 1e-4


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_forms_give_one_answer(mode, tmp_path):
    found = [
        answer(
            compile_to(tmp_path / f"{form}.npu", decoder(tmp_path / f"{form}.onnx", form), **SIZES), PROMPT, FED, mode
        )
        for form in CACHE_FORMS
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(other.prompt, found[0].prompt)
        np.testing.assert_array_equal(other.step, found[0].step)


@pytest.mark.parametrize("form", ["tensor_scatter", "gqa_shared"])
def test_a_buffer_of_a_fixed_size_bounds_the_context(form, tmp_path):
    summary = compile_to_blob(decoder(tmp_path / "model.onnx", form), tmp_path / "m.npu", CompileOptions())
    assert summary is not None
    assert (
        f"limited to {SLOTS} tokens (its cache of a fixed size has): prompts up to 12, then 12 new tokens or more"
        in (summary.report)
    )


@pytest.mark.parametrize("form", CACHE_FORMS)
def test_names_may_say_nothing(form, tmp_path):
    """Which output is the next value of which input follows from the operators."""
    model = onnx.load(decoder(tmp_path / "named.onnx", form))
    others = {"past_k": "x7", "past_v": "x3", "new_k": "y1", "new_v": "y9"}
    for value in (*model.graph.input, *model.graph.output):
        value.name = others.get(value.name, value.name)
    for node in model.graph.node:
        node.input[:] = [others.get(name, name) for name in node.input]
        node.output[:] = [others.get(name, name) for name in node.output]
    onnx.save(model, tmp_path / "other.onnx")
    named, other = (
        answer(compile_to(tmp_path / "m.npu", tmp_path / f"{name}.onnx", chunk=4, **SIZES), PROMPT, FED)
        for name in ("named", "other")
    )
    np.testing.assert_array_equal(other.prompt, named.prompt)
    np.testing.assert_array_equal(other.step, named.step)


def counting(folder: Path, step: int = 1) -> Path:
    """The Concat form, whose positions come from a counter of tokens that the model keeps itself."""
    model = onnx.load(decoder(folder / "plain.onnx", "concat"))
    graph, whole = model.graph, onnx.TensorProto.INT64
    graph.input.remove(next(value for value in graph.input if value.name == "position_ids"))
    graph.input.append(onnx.helper.make_tensor_value_info("past_seen", whole, [1]))
    graph.output.append(onnx.helper.make_tensor_value_info("new_seen", whole, [1]))
    for name, array in (("c_step", [step]), ("c_one", 1), ("c_axis", [0])):
        graph.initializer.append(numpy_helper.from_array(np.array(array, np.int64), name))
    front = [
        ("Shape", ["input_ids"], "c_rows", {"start": 1}),
        ("Mul", ["c_rows", "c_step"], "c_more", {}),
        ("Add", ["past_seen", "c_more"], "new_seen", {}),
        ("Squeeze", ["past_seen"], "c_first", {}),
        ("Squeeze", ["new_seen"], "c_last", {}),
        ("Range", ["c_first", "c_last", "c_one"], "c_flat", {}),
        ("Unsqueeze", ["c_flat", "c_axis"], "position_ids", {}),
    ]
    for place, (op, inputs, output, attributes) in enumerate(front):
        graph.node.insert(place, onnx.helper.make_node(op, inputs, [output], name=output, **attributes))
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_counter_grows_by_the_valid_rows(chunk, tmp_path):
    options = CompileOptions(precision="f32", chunk=chunk, **SIZES)
    assert check(Check(counting(tmp_path), options, prompt=PROMPT, tokens=9)).agrees


def test_a_counter_of_something_else_is_refused(tmp_path):
    with pytest.raises(ModelRefused) as error:
        compile_to(tmp_path / "m.npu", counting(tmp_path, step=2), chunk=4, **SIZES)
    assert error.value.problems == (
        "state 'past_seen' is an integer that each run replaces, but does not count the tokens",
    )


def test_rows_that_are_written_elsewhere_are_refused(tmp_path):
    model = onnx.load(decoder(tmp_path / "model.onnx", "tensor_scatter"))
    place, write = next((i, n) for i, n in enumerate(model.graph.node) if n.op_type == "TensorScatter")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))
    model.graph.node.insert(place, onnx.helper.make_node("Add", ["write_at", "one"], ["late"], name="late"))
    write.input[2] = "late"
    onnx.save(model, tmp_path / "late.onnx")
    with pytest.raises(ModelRefused) as error:
        compile_to(tmp_path / "m.npu", tmp_path / "late.onnx", chunk=4, **SIZES)
    assert error.value.problems == (
        "state 'past_k': with 0 past rows its cache is not written at [0, 1, 2], the slots of the new ones",
    )


def test_an_input_of_two_meanings_is_refused(tmp_path):
    model = onnx.load(decoder(tmp_path / "model.onnx", "tensor_scatter"))
    write = next(node for node in model.graph.node if node.op_type == "TensorScatter")
    write.input[2] = "filled"
    onnx.save(model, tmp_path / "both.onnx")
    with pytest.raises(ModelRefused) as error:
        compile_to(tmp_path / "m.npu", tmp_path / "both.onnx", chunk=4, **SIZES)
    assert error.value.problems == (
        "node 'n12_Attention' (Attention): graph input 'filled' is read as the number of tokens after the run, and "
        "elsewhere as the number of tokens in the cache",
    )


def test_the_vocabulary_of_the_forms(tmp_path):
    """The forms are one model: onnxruntime gives one answer for a prompt without a past."""
    import onnxruntime

    rows = len(PROMPT)
    feeds = {
        "concat": {"position_ids": np.arange(rows)[None]},
        "attention": {},
        "gqa": {"seqlens_k": np.array([rows - 1], np.int32), "all": np.array(rows, np.int32)},
    }
    empty = np.zeros((1, GROUPS, 0, SIZE), np.float32)
    found = []
    for form, more in feeds.items():
        session = onnxruntime.InferenceSession(decoder(tmp_path / f"{form}.onnx", form))
        found.append(
            session.run(["logits"], {"input_ids": np.array([PROMPT]), "past_k": empty, "past_v": empty, **more})[0]
        )
    assert found[0].shape == (1, rows, VOCAB)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-5, atol=1e-5)
