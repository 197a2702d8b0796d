"""`--host-ops` on the command line: named in every report, refused where it cannot be had."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from npuc.cli import main as npuc
from tests.support.graphs import written

BODY = """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1,1,2,2}> {
  e = Exp (x)
  r = Resize <mode="linear"> (e, , s)
  y = Neg (r)
}"""
LINEAR = ["--precision", "f32", "--host-ops", "Resize"]


def test_named_in_every_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, blob, report = written(tmp_path, BODY, opset=18), tmp_path / "m.npu", tmp_path / "r.json"
    assert npuc(["compile", str(model), "-o", str(blob), "--report", str(report), *LINEAR]) == 0
    told = capsys.readouterr()
    assert "main: node r (Resize) runs on the host" in told.err.splitlines()
    assert "tasks in 2 parts, with steps of the host" in told.out
    rows = {row["node"]: row for row in json.loads(report.read_text())["entries"][0]["nodes"]}
    assert (rows["r"]["fate"], rows["r"]["engine"], rows["e"]["engine"]) == ("host", "host", "SHAVE")
    assert npuc(["inspect", str(blob)]) == 0
    assert "program main: main.part0, host Resize (r), main.part1" in capsys.readouterr().out
    assert npuc(["profile", str(blob)]) == 0
    assert "not timed: 1 steps of the host (Resize)" in capsys.readouterr().out
    assert npuc(["ops", "--op", "Resize"]) == 0
    assert "on request     host: where no kernel takes it and --host-ops asks for it" in capsys.readouterr().out


def test_exec_and_check_run_it(tmp_path: Path) -> None:
    model, feeds, results, blob = (
        written(tmp_path, BODY, opset=18),
        *(tmp_path / n for n in ("i.npz", "o.npz", "m.npu")),
    )
    x = np.random.default_rng(0).standard_normal((1, 1, 4, 4)).astype(np.float32)
    np.savez(feeds, x=x)
    wanted = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    assert npuc(["compile", str(model), "-o", str(blob), *LINEAR]) == 0
    for source, options in ((model, LINEAR), (blob, [])):
        for mode in ("exact", "fast"):
            words = ["exec", str(source), "--input", str(feeds), "--output", str(results), "--mode", mode, *options]
            assert npuc(words) == 0
            np.testing.assert_allclose(np.load(results)["y"], wanted, rtol=1e-5)
    assert npuc(["check", str(model), "--all", *LINEAR]) == 0
    assert npuc(["check", str(model), str(blob)]) == 0


@pytest.mark.parametrize(
    ("call", "words", "message"),
    [
        ("Resize <mode=\"linear\"> (e, , s)", [], "node r (Resize of [1, 1, 4, 4], ?, [4]): there is no kernel for "
         "this op; --host-ops Resize computes it on the host"),
        ("Resize <mode=\"cubic\"> (e, , s)", ["--host-ops", "all"], "node r (Resize of [1, 1, 4, 4], ?, [4]): the host "
         "does not compute it: attribute 'mode' is none of nearest, linear"),
        ("Resize <mode=\"linear\"> (e, , s)", ["--host-ops", "Softmax"], "--host-ops Softmax: the host computes "
         "BitwiseAnd, BitwiseNot, BitwiseOr, BitwiseXor, ConvTranspose, Det, Einsum, GridSample, Resize"),
    ],
)  # fmt: skip
def test_refused(call: str, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = BODY.replace('Resize <mode="linear"> (e, , s)', call)
    model, blob = written(tmp_path, body, opset=18), tmp_path / "m.npu"
    assert npuc(["compile", str(model), "-o", str(blob), *words]) != 0
    assert message in capsys.readouterr().err
    assert not blob.exists()


def test_a_graph_that_is_all_for_the_host_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = written(tmp_path, "g (float[2,2] x) => (float y) { y = Det (x) }", opset=18)
    assert npuc(["compile", str(model), "-o", str(tmp_path / "m.npu"), "--host-ops", "Det"]) != 0
    assert "node y (Det of [2, 2]): --host-ops leaves nothing of the graph for the device" in capsys.readouterr().err


def test_a_state_beside_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = """g (float[2,2] x) => (float y) {
      old = npuc.ReadValue <variable_id = "s", shape : ints = [2, 2], dtype = 1> ()
      new = Add (old, x)
      done = npuc.Assign <variable_id = "s", shape : ints = [2, 2], dtype = 1> (new)
      d = Det (new)
      y = Neg (d)
    }"""
    model = written(tmp_path, body, opset=18, extra='"npuc" : 1')
    assert npuc(["compile", str(model), "-o", str(tmp_path / "m.npu"), "--host-ops", "Det"]) != 0
    assert "node d (Det of [2, 2]): --host-ops needs a graph without states" in capsys.readouterr().err
