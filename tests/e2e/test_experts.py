"""Mixtures of experts from an exporter's file to numbers on both devices, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import npurt
from npuc.compare import Request, check
from npuc.driver import CompileOptions
from npurt.abi.records import DmaOp
from npurt.target import load_target
from npurt.timing import EntryTimer
from tests.support.models import CORPUS, DATA, answer, compile_to, cosine
from tests.support.models import reference as reference_of

EXPERTS = DATA / "experts"
SIZES = {"max_prompt_len": 12, "min_response_len": 8, "capacities": (11, 20)}
FORMS = ("loop_torchscript", "loop_dynamo", "dense_tile", "sorted_tokens", "dense_loop")


def reference(name: str, x: np.ndarray) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(EXPERTS / f"{name}.onnx"), options)
    return np.asarray(session.run(None, {session.get_inputs()[0].name: x})[0])


@pytest.mark.parametrize("rows", [1, 6])
@pytest.mark.parametrize("name", FORMS)
def test_every_form_on_both_devices(name: str, rows: int, tmp_path: Path) -> None:
    x = np.random.default_rng(rows).standard_normal((1, rows, 16)).astype(np.float32)
    want = reference(name, x)
    for precision, tolerance in (("f32", 1e-4), ("f16", 2e-2)):
        blob = compile_to(
            tmp_path / f"{precision}.npu", EXPERTS / f"{name}.onnx", precision=precision, dims={"rows": rows}, llm=False
        )
        for mode in ("exact", "fast"):
            device = npurt.open_device(npurt.load(blob), mode)
            (got,) = device.run("main", {"x": x}).values()
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
            assert not getattr(device, "notes", [])


def test_one_row_loads_its_experts_alone_and_many_rows_all(tmp_path: Path) -> None:
    """Five experts, two chosen: the bytes of the gathers, and those of the whole entry by the machine's own count."""
    expert = (3 * 16 * 24) * 2  # gate, up and down in f16
    loaded = {}
    for rows in (1, 6):
        blob = compile_to(
            tmp_path / "m.npu", EXPERTS / "sorted_tokens.onnx", precision="f16", dims={"rows": rows}, llm=False
        )
        image = npurt.load(blob)
        dma = image.tables.dma
        gathers = dma[(dma["op"] == DmaOp.GATHER) & (dma["size"][:, -1] > 1)]
        timer = EntryTimer(image, image.entries["main"], load_target("npu40xx"))
        loaded[rows] = int(gathers["size"].astype(np.int64).prod(1).sum()) * 2, timer.run().ddr_read
        if rows == 1:
            assert loaded[1][0] == 2 * expert
        else:
            assert not len(gathers)
            assert timer.run(taken=True).ddr_read - timer.run(taken=False).ddr_read in (0, 5 * expert)
    rest = 16 * 5 * 4  # the router's own weights stay f32
    row = 2 * 16 * 2  # x, for the router and for the experts
    assert loaded[1][1] == 2 * expert + rest + row
    assert loaded[6][1] == 5 * expert + rest + 6 * row


def test_what_decides_stays_float32(tmp_path: Path) -> None:
    """Two experts whose scores differ by less than f16 tells apart: the device still picks the better one."""
    import onnx

    model = onnx.load(EXPERTS / "sorted_tokens.onnx")
    router = next(i for i in model.graph.initializer if list(i.dims) in ([5, 16], [16, 5]))
    scores = np.zeros((5, 16), np.float32)
    scores[:, 0] = [1.0, 1.0001, 0.5, 1.00005, 0.25]
    turned = scores if list(router.dims) == [5, 16] else scores.T
    router.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(turned), router.name))
    path = tmp_path / "close.onnx"
    onnx.save(model, path)
    x = np.random.default_rng(0).standard_normal((1, 6, 16)).astype(np.float32)
    x[..., 0] = np.array([1.0, -1.0, 0.5, 2.0, -2.0, 1.5])
    session = ort.InferenceSession(str(path))
    (want,) = session.run(None, {"x": x})
    blob = compile_to(tmp_path / "m.npu", path, precision="f16", dims={"rows": 6}, llm=False)
    (got,) = npurt.open_device(npurt.load(blob), "exact").run("main", {"x": x}).values()
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("chunk", [4, 9])
def test_a_language_model_with_onnxruntimes_operator(chunk: int, tmp_path: Path) -> None:
    """Prompts of 9 in chunks of 4 leave three rows of padding in the last, which choose no expert."""
    name = "gptoss-genai-fp32"
    prompt, fed, want_prompt, want_step = reference_of(name)
    for precision in ("f32", "f16"):
        blob = compile_to(tmp_path / "m.npu", CORPUS / name / "model.onnx", precision=precision, chunk=chunk, **SIZES)
        for mode in ("exact", "fast"):
            got = answer(blob, prompt, fed, mode)
            if precision == "f32":
                np.testing.assert_allclose(got.prompt, want_prompt, rtol=1e-3, atol=1e-3)
                np.testing.assert_allclose(got.step, want_step, rtol=1e-3, atol=1e-3)
            assert cosine(got.prompt, want_prompt).min() >= 0.999 and cosine(got.step, want_step).min() >= 0.999
            assert got.tokens[: len(fed)] == fed
    image = npurt.load(blob)
    loads = {
        entry: EntryTimer(image, image.entries[entry], load_target("npu40xx")).run(n_past=4).ddr_read
        for entry in ("prefill", "generate.11")
    }
    expert = 2 * (2 * 64 * 64 + 64 * 64)  # f16: gate, up and down
    more = loads["prefill"] - loads["generate.11"]
    assert 2 * 2 * expert <= more <= 2 * 2 * expert + 8192  # of two layers the two experts that a row does not choose


def test_every_group_of_a_language_model_agrees() -> None:
    """Padding that chooses no expert is nobody's value: a chunk's last rows are not compared behind the experts."""
    options = CompileOptions(precision="f16", chunk=4, max_prompt_len=10, capacities=(11,))
    result = check(Request(CORPUS / "gptoss-genai-fp32" / "model.onnx", options, everything=True))
    assert result.agrees, result.lines()
    assert result.tally is not None and result.tally.compared > 100
