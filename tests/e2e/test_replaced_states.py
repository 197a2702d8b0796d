"""Language models with states that a run replaces: windows of convolutions, recurrences; in chunks and one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import npurt
from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions, compile_to_blob
from npuc.frontend.errors import ModelRefused
from npurt.llm import Request, Session
from tests.support.decoders import FLOAT, GROUPS, HEADS, HIDDEN, INT, SIZE, VOCAB, GraphMaker
from tests.support.graphs import parsed
from tests.support.models import CORPUS, answer, compile_to, cosine, reference

WINDOW, STEP, RING = "lfm2-genai-fp32", "mamba-hfx-step-op18", "mistral-torchdyn-op18-winkv"
SIZES = {"max_prompt_len": 12, "capacities": (11, 20)}
DIMS = {WINDOW: {"kv_cache_dim": 16}, STEP: {}}


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize(("name", "chunk"), [(WINDOW, 1), (WINDOW, 2), (WINDOW, 4), (WINDOW, 9), (STEP, 1)])
def test_reference(name, chunk, mode, tmp_path):
    """f32 within the reference's tolerance, f16 by direction; a window is cut behind the last valid row."""
    prompt, fed, want_prompt, want_step = reference(name)
    sizes = {**SIZES, "chunk": chunk, "dims": DIMS[name]}
    model = CORPUS / name / "model.onnx"
    exact = answer(compile_to(tmp_path / "f32.npu", model, precision="f32", **sizes), prompt, fed, mode)
    np.testing.assert_allclose(exact.prompt, want_prompt, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(exact.step, want_step, rtol=1e-4, atol=1e-4)
    half = answer(compile_to(tmp_path / "f16.npu", model, **sizes), prompt, fed, mode)
    assert min(cosine(half.prompt, want_prompt).min(), cosine(half.step, want_step).min()) >= 0.999
    assert exact.tokens[: len(fed)] == half.tokens[: len(fed)] == fed


@pytest.mark.parametrize("name", [WINDOW, STEP])
def test_states_after_the_answer(name, tmp_path):
    """What the device holds at the end is what the exporter's graph gives; a reset brings zeros back."""
    prompt, fed, *_ = reference(name)
    blob = compile_to(
        tmp_path / "m.npu", CORPUS / name / "model.onnx", precision="f32", chunk=4, dims=DIMS[name], **SIZES
    )
    image = npurt.load(blob)
    device = npurt.Device(image)
    Session(image, device).generate(prompt, Request(max_new_tokens=5, force_ids=tuple(fed), eos=())).finish()
    pairs = dict(json.loads((CORPUS / "index.json").read_text())[name])
    replaced = [state.id for state in image.metadata.states if state.kind == "replace"]
    assert len(replaced) == (2 if name == WINDOW else 4)
    with np.load(CORPUS / name / "ref.npz") as ref:
        for id in replaced:
            np.testing.assert_allclose(device.state(id), ref[f"decode4/out/{pairs[id]}"], rtol=1e-4, atol=1e-4)
    device.reset()
    assert not any(device.state(id).any() for id in replaced)


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("name", [WINDOW, STEP, RING])
def test_an_answer_goes_on_where_its_states_are_put(name, mode, tmp_path):
    """Read from one device in mid-answer and set on another of either mode, in a larger capacity than so far."""
    prompt, *_ = reference(name)
    sizes = {**SIZES, "chunk": 4, "precision": "f32", "dims": DIMS.get(name, {})}
    image = npurt.load(compile_to(tmp_path / "m.npu", CORPUS / name / "model.onnx", **sizes))
    first, other = npurt.Device(image), npurt.open_device(image, mode)
    Session(image, first).generate(prompt, Request(max_new_tokens=2, eos=())).finish()
    for state in image.metadata.states:
        other.set_state(state.id, first.state(state.id))
    ids = {"input_ids": np.array([[7]])}
    wanted, found = (device.run("generate.20", ids, n_past=len(prompt) + 1)["hidden"] for device in (first, other))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    for state in image.metadata.states:
        np.testing.assert_allclose(other.state(state.id), first.state(state.id), rtol=1e-5, atol=1e-5)


def test_a_recurrent_model_has_one_capacity(tmp_path):
    summary = compile_to_blob(CORPUS / STEP / "model.onnx", tmp_path / "m.npu", CompileOptions(chunk=4, **SIZES))
    assert summary is not None
    assert "chunk 4: the graph was exported with 1 rows a run: 1 is used" in summary.report
    assert list(npurt.load(tmp_path / "m.npu").entries) == ["prefill", "generate.20", "head"]


# h_t = h_(t-1) / 2 + e_t for any number of rows: powers of two by the row, a running sum, and back
RECURRENT = """
agraph (int64[1, rows] input_ids, float[1, 4] past_h) => (float[1, rows, 11] logits, float[1, 4] present_h)
<float two = {2.0}, int64 one = {1}, int64[1] axis_1 = {1}, int64[1] last = {-1},
 int64[1] end = {9223372036854775807}>
{
  e = Gather (table, input_ids)
  shape = Shape <start = 1> (input_ids)
  count = Squeeze (shape)
  behind = Add (count, one)
  place = Range (one, behind, one)
  floats = Cast <to = 1> (place)
  powers = Pow (two, floats)
  column = Unsqueeze (powers, axis_1)
  grown = Mul (e, column)
  sums = CumSum (grown, axis_1)
  before = Unsqueeze (past_h, axis_1)
  all = Add (sums, before)
  h = Div (all, column)
  final = Slice (h, last, end, axis_1)
  present_h = Squeeze (final, axis_1)
  wide = Tanh (h)
  logits = MatMul (wide, vocab)
}
"""


def recurrent(folder: Path, rows: str = "rows") -> Path:
    model = parsed(RECURRENT.replace("[1, rows", f"[1, {rows}"))
    random = np.random.default_rng(3)
    for name, shape in (("table", (11, 4)), ("vocab", (4, 11))):
        model.graph.initializer.append(numpy_helper.from_array(random.normal(size=shape).astype(np.float32), name))
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def expected(path: Path, tokens: list[int]) -> np.ndarray:
    session = onnxruntime.InferenceSession(path)
    return session.run(["logits"], {"input_ids": np.array([tokens]), "past_h": np.zeros((1, 4), np.float32)})[0][0]


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("chunk", [1, 3, 4])
@pytest.mark.parametrize("prompt", [1, 3, 4, 7, 8])
def test_padding_stays_out_of_a_recurrence(prompt, chunk, mode, tmp_path):
    """Whole chunks through prefill, the rest of the prompt one by one."""
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    model = recurrent(tmp_path)
    blob = compile_to(tmp_path / "m.npu", model, precision="f32", chunk=chunk, max_prompt_len=8, capacities=(16,))
    got = answer(blob, tokens[:prompt], tokens[prompt:], mode)
    np.testing.assert_allclose(np.concatenate([got.prompt, got.step]), expected(model, tokens), rtol=1e-5, atol=1e-5)


def test_chunks_that_must_be_whole_are_short(tmp_path):
    summary = compile_to_blob(recurrent(tmp_path), tmp_path / "m.npu", CompileOptions(max_prompt_len=64))
    assert summary is not None and summary.lines[0] == "chunk       16 rows, prompts up to 64 tokens"
    assert summary.report[0] == (
        "a state is replaced by each run and would take padding in: chunks are run where all their rows are valid, and "
        "the rest of a prompt row by row"
    )


def hybrid(path: Path) -> Path:
    """A cache, the window of a convolution and a recurrence in one model."""
    g, float_, end = GraphMaker(11), np.float32, 2**63 - 1
    x = g.op("Gather", g.weight(VOCAB, HIDDEN), "input_ids")
    joined = g.op("Concat", "past_conv", g.op("Transpose", x, perm=[0, 2, 1]), axis=2)
    g.op("Slice", joined, g.const([-2]), g.const([end]), g.const([2]), out="new_conv")
    x = g.op("Transpose", g.op("Conv", joined, g.weight(HIDDEN, 1, 3), group=HIDDEN), perm=[0, 2, 1])
    rows = g.op("Squeeze", g.op("Shape", "input_ids", start=1))
    place = g.op("Range", g.const(1), g.op("Add", rows, g.const(1)), g.const(1))
    power = g.op("Unsqueeze", g.op("Pow", g.const(2, float_), g.op("Cast", place, to=FLOAT)), g.const([1]))
    sums = g.op("Add", g.op("CumSum", g.op("Mul", x, power), g.const(1)), g.op("Unsqueeze", "past_h", g.const([1])))
    h = g.op("Div", sums, power)
    g.op("Gather", h, g.const(-1), out="new_h", axis=1)
    q, k, v = (g.op("MatMul", x, g.weight(HIDDEN, n * SIZE)) for n in (HEADS, GROUPS, GROUPS))
    mixed = g.op(
        "Attention", q, k, v, "", "past_k", "past_v", out=["mixed", "new_k", "new_v"], is_causal=1, q_num_heads=HEADS,
        kv_num_heads=GROUPS,
    )  # fmt: skip
    y = g.op("Add", g.op("MatMul", mixed, g.weight(HEADS * SIZE, HIDDEN)), g.op("Tanh", h))
    g.op("MatMul", y, g.weight(HIDDEN, VOCAB), out="logits")
    sizes = {"k": [1, GROUPS, "n", SIZE], "v": [1, GROUPS, "n", SIZE], "conv": [1, HIDDEN, 2], "h": [1, HIDDEN]}
    before = [(f"past_{name}", FLOAT, shape) for name, shape in sizes.items()]
    after = [(f"new_{name}", FLOAT, ["all" if d == "n" else d for d in shape]) for name, shape in sizes.items()]
    return g.write(
        path, [("input_ids", INT, [1, "rows"]), *before], [("logits", FLOAT, [1, "rows", VOCAB]), *after], 23
    )


@pytest.mark.parametrize("mode", ["exact", "fast"])
@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_every_class_of_state_in_one_model(chunk, mode, tmp_path):
    model = hybrid(tmp_path / "model.onnx")
    options = CompileOptions(precision="f32", chunk=chunk, max_prompt_len=9, capacities=(11, 20))
    result = check(Check(model, options, prompt=[3, 1, 4, 1, 5, 9, 2, 6], tokens=9, mode=mode, everything=True))
    assert result.agrees and result.step is None and result.group is None
    compile_to(tmp_path / "m.npu", model, chunk=chunk, max_prompt_len=9, capacities=(11, 20))
    kinds = {state.id: state.kind for state in npurt.load(tmp_path / "m.npu").metadata.states}
    assert kinds == {"past_k": "append", "past_v": "append", "past_conv": "replace", "past_h": "replace"}


def test_bench_runs_whole_chunks(tmp_path):
    blob = compile_to(tmp_path / "m.npu", recurrent(tmp_path), chunk=4, max_prompt_len=8, capacities=(16,))
    outcome = subprocess.run(
        [sys.executable, "-m", "npuc", "bench", str(blob), "--prompt-tokens", "6", "--gen-tokens", "2"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stderr


def test_a_run_with_padding_is_refused(tmp_path):
    blob = compile_to(tmp_path / "m.npu", recurrent(tmp_path), chunk=4, max_prompt_len=8, capacities=(16,))
    device = npurt.Device(npurt.load(blob))
    with pytest.raises(npurt.DeviceError, match="entry prefill: n_new 3, only 4 is possible: it replaces a state"):
        device.run("prefill", {"input_ids": np.zeros((1, 4))}, n_new=3)


def test_several_fixed_rows_cannot_advance_a_recurrence_by_one(tmp_path):
    with pytest.raises(ModelRefused) as error:
        compile_to(tmp_path / "m.npu", recurrent(tmp_path, "4"))
    assert error.value.problems == (
        "state 'past_h' is replaced by each run (its next value comes from node present_h (Squeeze), not from "
        "a Concat, so each run gives a whole new value), and the graph was exported with 4 rows a run: a single token "
        "would bring padding into it; export it with one row, or an open number",
    )
