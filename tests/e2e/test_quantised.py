"""Models with quantised weights, from file to values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static

import npurt
from npuc.driver import CompileOptions, compile_to_blob
from tests.support.models import CORPUS, answer, compile_to, cosine, reference, run_graph

# The references are of weights dequantised by the operators' formulas, in float32 (onnxruntime, without accuracy_level)
MODELS = ("llama-genai-int4-prunedhead", "llama-genai-int4-qdq")
SIZES = {"chunk": 4, "max_prompt_len": 12, "min_response_len": 8, "capacities": (11, 20)}


@pytest.mark.parametrize("name", MODELS)
def test_f32_agrees_with_the_reference(name, tmp_path):
    """prunedhead gives the logits of the last position alone, the device those of all."""
    prompt, fed, want_prompt, want_step = reference(name)
    blob = compile_to(tmp_path / "m.blob", CORPUS / name / "model.onnx", precision="f32", **SIZES)
    got = answer(blob, prompt, fed)
    assert got.prompt.shape[0] == len(prompt) and len(want_prompt) == (1 if "pruned" in name else len(prompt))
    np.testing.assert_allclose(got.prompt[-len(want_prompt) :], want_prompt, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(got.step, want_step, rtol=1e-3, atol=1e-3)
    assert got.tokens[: len(fed)] == fed


@pytest.mark.parametrize("name", MODELS)
def test_f16_keeps_the_direction_of_every_row(name, tmp_path):
    prompt, fed, want_prompt, want_step = reference(name)
    got = answer(compile_to(tmp_path / "m.blob", CORPUS / name / "model.onnx", **SIZES), prompt, fed)
    assert cosine(got.prompt[-len(want_prompt) :], want_prompt).min() >= 0.999
    assert cosine(got.step, want_step).min() >= 0.999
    assert got.tokens[: len(fed)] == fed


def test_the_report_says_what_became_of_the_weights(tmp_path):
    model = CORPUS / "llama-genai-int4-prunedhead" / "model.onnx"
    summary = compile_to_blob(model, tmp_path / "m.blob", CompileOptions(**SIZES))
    assert summary is not None
    assert [line for line in summary.report if "codes" in line or "accuracy" in line] == [
        "11 weights kept as codes: 4 bits in blocks of 32, zero points (MatMulNBits)",
        "accuracy_level 4 of 11 MatMulNBits is not imitated: their activations stay floats",
        *(
            f"{entry}: {count} products of u4 codes in groups of 32 and zero points of their own: {groups} products "
            "that add up on-chip, 0.3 us as codes, 26.0 us dequantised"
            for entry in ("prefill", "generate.11", "generate.20")
            for count, groups in ((8, 4), (2, 8))
        ),
        "head: 1 product of u4 codes in groups of 32 and zero points of their own: 4 products that add up on-chip, "
        "0.6 us as codes, 49.5 us dequantised",
    ]


ROWS, WIDTH, BLOCK = 24, 64, 32


def tied(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows gathered from a 4-bit table and multiplied with it; the table's blob reaches the Gather by a Reshape.

    The table in float64, and the ids.
    """
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 16, (ROWS, WIDTH))
    scales = rng.uniform(0.02, 0.2, (ROWS, WIDTH // BLOCK)).astype(np.float32)
    held = {
        "codes": (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8).reshape(ROWS, WIDTH // BLOCK, BLOCK // 2),
        "scales": scales,
        "shape": np.array([ROWS, WIDTH // 2]),
    }
    gather = {"bits": 4, "block_size": BLOCK, "gather_axis": 0, "quantize_axis": 1}
    product = {"bits": 4, "block_size": BLOCK, "K": WIDTH, "N": ROWS}
    graph = helper.make_graph(
        [
            helper.make_node("Reshape", ["codes", "shape"], ["table"]),
            helper.make_node(
                "GatherBlockQuantized", ["table", "ids", "scales"], ["x"], domain="com.microsoft", **gather
            ),
            helper.make_node("MatMulNBits", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **product),
        ],
        "tied",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, ROWS])],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    numbers = (codes - 8.0) * np.repeat(scales.astype(np.float64), BLOCK, axis=1)
    return numbers, rng.integers(0, ROWS, 5)


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_a_quantised_table_used_twice_is_stored_once(precision, tmp_path):
    numbers, ids = tied(tmp_path / "m.onnx")
    blob = compile_to(tmp_path / "m.blob", tmp_path / "m.onnx", precision=precision)
    table = ROWS * (WIDTH // 2 + WIDTH // BLOCK * 4)
    assert table <= npurt.load(blob).weights.nbytes < table + 1024
    want = numbers[ids] @ numbers.T
    tolerance = 1e-4 if precision == "f32" else 2e-2 * float(np.ptp(want))
    np.testing.assert_allclose(run_graph(blob, {"ids": ids})["y"], want, rtol=1e-4, atol=tolerance)


class Prompts(CalibrationDataReader):
    """Feeds for the calibration of a corpus model: whole prompts without a past."""

    def __init__(self, *prompts: list[int]) -> None:
        self.left = [feeds(prompt) for prompt in prompts]

    def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
        return self.left.pop() if self.left else None


def feeds(prompt: list[int]) -> dict[str, np.ndarray]:
    caches = {
        f"past_key_values.{i}.{part}": np.zeros((1, 2, 0, 16), np.float32) for i in (0, 1) for part in ("key", "value")
    }
    ids = np.array([prompt])
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "position_ids": np.arange(ids.size)[None], **caches}


@pytest.mark.parametrize("kind", [QuantType.QUInt8, QuantType.QInt16], ids=["uint8", "int16"])
@pytest.mark.parametrize("where", ["products with a weight", "all products"])
def test_activations_quantised_with_constant_scales(where, kind, tmp_path):
    """quantize_static, logits included: nearly all codes and so logits agree. "all": those inside attention, too."""
    source, path = CORPUS / "llama-torchdyn-op18" / "model.onnx", tmp_path / "m.onnx"
    prompt, fed, *_ = reference("llama-torchdyn-op18")
    graph = onnx.load(source).graph
    weights = {tensor.name for tensor in graph.initializer}
    products = [n.name for n in graph.node if n.op_type == "MatMul" and (where[0] == "a" or n.input[1] in weights)]
    quantize_static(source, path, Prompts(prompt), nodes_to_quantize=products, per_channel=True, activation_type=kind)
    assert sum(node.op_type == "QuantizeLinear" for node in onnx.load(path).graph.node) >= len(products)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(path, options, ["CPUExecutionProvider"]).run(["logits"], feeds(prompt))[0][0]
    exact = ort.InferenceSession(source, options, ["CPUExecutionProvider"]).run(["logits"], feeds(prompt))[0][0]
    got = answer(compile_to(tmp_path / "m.blob", path, precision="f32", **SIZES), prompt, fed).prompt
    assert np.isclose(got, want, atol=1e-3).mean() > 0.95  # halves may round apart where sums differ in the last bit
    assert not np.isclose(exact, want, atol=1e-4).all()
    half = answer(compile_to(tmp_path / "h.blob", path, **SIZES), prompt, fed).prompt
    assert cosine(half, want).min() >= 0.99


def in_pieces(path: Path, prompt: list[int], size: int) -> np.ndarray:
    """Logits of a prompt that onnxruntime gets in pieces, each with the caches of the one before."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, ["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    given, rows = feeds([]), []
    for first in range(0, len(prompt), size):
        piece = np.array([prompt[first : first + size]])
        given |= {"input_ids": piece, "position_ids": first + np.arange(piece.size)[None]}
        given["attention_mask"] = np.ones((1, first + piece.size), np.int64)
        found = dict(zip(names, session.run(names, given), strict=True))
        rows.append(found["logits"][0])
        given |= {name.replace("present", "past_key_values"): v for name, v in found.items() if name != "logits"}
    return np.concatenate(rows)


@pytest.mark.parametrize("where", ["products with a weight", "all products"])
def test_activations_quantised_with_the_scale_of_a_run(where, tmp_path):
    """quantize_dynamic: as onnxruntime has it for the same pieces of the prompt, and padding shows in no bit."""
    source, path = CORPUS / "llama-torchdyn-op18" / "model.onnx", tmp_path / "m.onnx"
    prompt, fed, *_ = reference("llama-torchdyn-op18")
    only_weights = where != "all products"
    quantize_dynamic(source, path, per_channel=True, extra_options={"MatMulConstBOnly": only_weights})
    codes = sum(node.op_type == "MatMulInteger" for node in onnx.load(path).graph.node)
    assert codes == (15 if only_weights else 19)
    answers = {}
    for chunk in (4, 9, 12):
        blob = compile_to(tmp_path / f"{chunk}.blob", path, precision="f32", **{**SIZES, "chunk": chunk})
        answers[chunk] = answer(blob, prompt, fed)
    for chunk in (4, 9):  # a half may round apart where sums differ in the last bit, and then moves the scale of others
        want = in_pieces(path, prompt, chunk)
        assert cosine(answers[chunk].prompt, want).min() >= 0.9999
        assert np.isclose(answers[chunk].prompt, want, atol=0.05).mean() > 0.95
    np.testing.assert_array_equal(answers[12].prompt, answers[9].prompt)
    np.testing.assert_array_equal(answers[12].step, answers[9].step)
    half = answer(compile_to(tmp_path / "h.blob", path, **SIZES), prompt, fed).prompt
    assert cosine(half, in_pieces(path, prompt, SIZES["chunk"])).min() >= 0.998


def test_a_cache_that_is_rounded_as_a_whole(tmp_path):
    """GPT-2 joins its values and multiplies with them at once: the pair of roundings stands behind the cache itself."""
    name, path = "gpt2-torchdyn-op18", tmp_path / "m.onnx"
    prompt, fed, *_ = reference(name)
    with np.load(CORPUS / name / "ref.npz") as ref:
        given = {key.removeprefix("prefill/in/"): ref[key] for key in ref.files if key.startswith("prefill/in/")}
    reader = Prompts()
    reader.left = [given]
    products = [n.name for n in onnx.load(CORPUS / name / "model.onnx").graph.node if n.op_type in ("MatMul", "Gemm")]
    quantize_static(CORPUS / name / "model.onnx", path, reader, nodes_to_quantize=products, per_channel=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(path, options, ["CPUExecutionProvider"]).run(["logits"], given)[0][0]
    summary = compile_to_blob(path, tmp_path / "m.blob", CompileOptions(precision="f32", **SIZES))
    assert summary is not None
    assert "2 caches are rounded to codes as a whole: their new rows are, before they join" in summary.report
    got = answer(tmp_path / "m.blob", prompt, fed).prompt
    assert np.isclose(got, want, atol=1e-3).mean() > 0.98


def test_a_quantised_table_of_positions(tmp_path):
    name, path = "gpt2-torchdyn-op18", tmp_path / "m.onnx"
    prompt, fed, *_ = reference(name)
    with np.load(CORPUS / name / "ref.npz") as ref:
        given = {key.removeprefix("prefill/in/"): ref[key] for key in ref.files if key.startswith("prefill/in/")}
    quantize_dynamic(CORPUS / name / "model.onnx", path, per_channel=True)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = ort.InferenceSession(path, options, ["CPUExecutionProvider"]).run(["logits"], given)[0][0]
    blob = compile_to(tmp_path / "m.blob", path, precision="f32", **{**SIZES, "chunk": 9})
    assert cosine(answer(blob, prompt, fed).prompt, want).min() >= 0.9999
