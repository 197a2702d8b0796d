"""Graphs that are no language models: entry `main` gives what the cases expect. And the model that comes with npuc."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npuc
from npuc.graph import BuildOptions, build
from tests.oracle.graph.stages import StagedModel, session
from tests.support.models import make_case

PLAIN = ["a02_padded_rows", "a05_norm_half", "a06_old_softmax", "a07_slice_ends", "a08_tied_vocab", "a11_assign_first"]
DEFAULT_MODEL = Path(npuc.__file__).parent / "data" / "default_model" / "model.onnx"


@pytest.mark.parametrize("case", PLAIN)
def test_plain_graph(case: str, tmp_path: Path) -> None:
    path, expected = make_case(case, tmp_path)
    graphs = build(path, dump_after=["ports"], dump_dir=tmp_path)
    assert [entry.label for entry in graphs.entries] == ["main"]
    runner = session(tmp_path / "ports.main.onnx")
    feeds = {key.removeprefix("in__"): value for key, value in expected.items() if key.startswith("in__")}
    for state in graphs.states:
        assert state.input is not None
        feeds[state.input] = np.zeros(state.shape, np.float32) if state.initial is None else state.initial
    outputs = dict(zip([value.name for value in runner.get_outputs()], runner.run(None, feeds), strict=True))
    wanted = {key.removeprefix("out__"): value for key, value in expected.items() if key.startswith("out__")}
    assert wanted
    for name, value in wanted.items():
        valid = expected.get(f"valid__{name}", np.ones(value.shape, bool))
        rtol, atol = float(expected.get("rtol", 1e-4)), float(expected.get("atol", 1e-4))
        np.testing.assert_allclose(outputs[name].astype(np.float64)[valid], value[valid], rtol=rtol, atol=atol)


def test_model_that_comes_with_npuc(tmp_path: Path) -> None:
    options = BuildOptions(chunk=4, max_prompt_len=16, capacities=(24,))
    graphs = build(DEFAULT_MODEL, options, dump_after=["state", "ports"], dump_dir=tmp_path)
    operators = [node.op_type for node in graphs.entry("prefill").model.graph]
    layers = len(graphs.states) // 2
    counts = [operators.count(name) for name in ("Attention", "Rotary", "RMSNorm", "Softmax")]
    assert counts == [layers, 2 * layers, 2 * layers + 1, 0]  # the last norm stands before the cut
    ids = np.array([0, 17, 5, 300, 42, 9, 1000])
    whole = session(tmp_path / "state.onnx")
    feeds: dict[str, np.ndarray] = {
        "input_ids": ids[None],
        "attention_mask": np.ones((1, 7), np.int64),
        "position_ids": np.arange(7)[None],
    }
    feeds.update({s.input: np.zeros((*s.shape[:2], 0, s.shape[3]), np.float32) for s in graphs.states if s.input})
    (expected,) = whole.run(["logits"], feeds)
    staged = StagedModel(graphs, tmp_path, "ports", garbage=float("nan"))
    np.testing.assert_allclose(staged.prompt(ids[:6]), expected[:, :6], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(staged.token(int(ids[6]), 6), expected[:, 6:], rtol=1e-3, atol=1e-3)
