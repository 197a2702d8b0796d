"""The human form and the JSON of results, line by line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npuc.cli import main
from npuc.compare.device import GroupFinding, Tally
from npuc.compare.groups import Group
from npuc.compare.result import Result
from npuc.compare.stages import StepFinding
from npuc.compare.tolerance import measure, tolerance_for

TOLERANCE = tolerance_for("f32")
EQUAL = measure(np.ones((2, 3)), np.ones((2, 3)), TOLERANCE)
WRONG = measure(np.array([[1.0, 3.0]]), np.array([[1.0, 2.0]]), TOLERANCE)
GROUP = Group("h_out", None, "h", "MatMul", ("matmul(bm=16, bn=32)",), ("dma.in", "dpu"), ("/a", "/b"), (1, 2), "f16")


def test_agreement() -> None:
    unknown = measure(np.array([1.0, 2.0]), np.array([1.0, np.nan]), TOLERANCE)
    result = Result(str(TOLERANCE), {"output y": EQUAL, "output long": unknown}, ([1, 2], [1, 3]))
    assert result.agrees
    assert result.lines() == [
        "agrees with onnxruntime (tolerance: error <= 0.001 + 0.001 x value)",
        "  ok   output y    [2, 3]: equal",
        "  ok   output long [2]: equal",
        "       1 values are NaN in onnxruntime and not compared",
        "  greedy tokens: 1 of 2 equal",
    ]


def test_a_group() -> None:
    finding = GroupFinding("prefill", 4, 3, GROUP, WRONG)
    result = Result(str(TOLERANCE), {"output y": WRONG}, group=finding)
    assert not result.agrees
    assert result.lines()[1:] == [
        "  FAIL output y [1, 2]: max error 1, relative 0.5, cosine 0.989949, at [0, 1]: 3 instead of 2",
        "the steps of the graph keep the result",
        "first group that diverges: h (MatMul) in entry prefill, n_past 4, n_new 3",
        "  value    h_out f16[1, 2]",
        "  error    max error 1, relative 0.5, cosine 0.989949, at [0, 1]: 3 instead of 2",
        "  kernel   matmul(bm=16, bn=32) on dma.in, dpu",
        "  sources  /a, /b",
    ]
    found = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert found["agrees"] is False and found["group"]["group"]["sources"] == ["/a", "/b"]
    assert found["group"]["difference"]["worst"] == [0, 1]


def test_a_step() -> None:
    result = Result(str(TOLERANCE), {"output y": WRONG}, step=StepFinding("norms", "output y", WRONG))
    assert result.lines()[-1] == (
        "step norms changes the result: output y [1, 2]: "
        "max error 1, relative 0.5, cosine 0.989949, at [0, 1]: 3 instead of 2"
    )
    assert str(StepFinding("fold", "output y", EQUAL)).startswith(
        "step fold, or recognise before it, changes the result"
    )
    assert str(StepFinding("clean", error="no")) == "step clean gives a graph that does not run: no"


def test_nothing_inside_diverges() -> None:
    result = Result(str(TOLERANCE), {"output y": WRONG}, tally=Tally(12, 2))
    assert result.lines()[-3:] == [
        "the steps of the graph keep the result; all 12 values of node groups are right",
        "2 of them only for the device's own inputs: rounding has added up before",
        "the error grows from run to run, or comes from what the probes change",
    ]


def test_infinities_are_texts_in_json() -> None:
    lost = measure(np.array([1.0, np.nan]), np.array([1.0, 2.0]), TOLERANCE)
    found = json.loads(json.dumps(Result("", {"output y": lost}).to_json(), allow_nan=False))
    assert found["parts"]["output y"]["max_abs"] == "inf"
    assert found["parts"]["output y"]["got"] == "nan"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompt", "a", "--prompt-ids", "1"], "--input, --prompt and --prompt-ids exclude each other"),
        (["BLOB", "--chunk", "4", "--dim", "a=1"], "--chunk: BLOB is compiled already, its own options are used"),
    ],
)
def test_wrong_use(words: list[str], message: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = tmp_path / "m.npu"
    blob.touch()
    words = [word.replace("BLOB", str(blob)) for word in words]
    assert main(["check", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {message.replace('BLOB', str(blob))}"
