"""The worked example of docs/stateful-format.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort

from npuc.frontend import LoadedModel, check_model
from npuc.graph.normalise import normalise
from npuc.graph.state import classify, state_to_arguments

PAGE = Path(__file__).parents[3] / "docs" / "stateful-format.md"


def test_example():
    (text,) = re.findall(r"```\n(<ir_version.*?)```", PAGE.read_text(), re.DOTALL)
    model = ir.from_proto(onnx.parser.parse_model(text))
    check_model(LoadedModel(model))
    pure, states = state_to_arguments(model, {"rows": 16})
    assert [(s.id, s.input, s.output) for s in states] == [
        ("scale", "state.scale", None),
        ("rows", "state.rows", "next.rows"),
        ("count", "state.count", "next.count"),
    ]
    found = classify(states, normalise(pure))
    assert [c.kind for c in found] == ["read_only", "append", "replace"] and found[1].rows == "row"
    runner = ort.InferenceSession(ir.to_proto(normalise(pure)).SerializeToString(), providers=["CPUExecutionProvider"])
    state = {
        "state.scale": states[0].initial,
        "state.rows": np.zeros((0, 4), np.float32),
        "state.count": np.zeros((), np.int64),
    }
    for number, mean, seen in ((1, [1, 2, 1, 0.5], 1), (3, [2, 4, 2, 1], 2)):
        feeds = {"x": np.full((1, 4), number, np.float32)} | state
        got = runner.run(["mean", "seen", "next.rows", "next.count"], feeds)
        np.testing.assert_allclose(got[0], [mean])
        assert got[1] == seen
        state |= {"state.rows": got[2], "state.count": got[3]}
