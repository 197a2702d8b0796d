"""Every stage of the corpus models runs in onnxruntime and gives the exporter's own numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.graph import BuildOptions, build
from tests.oracle.graph.stages import StagedModel, session

CORPUS = Path(__file__).parents[2] / "data" / "corpus"
MODEL_STAGES = ("state", "normalise", "weights", "expand", "measure")
STAGES = ("fold", "cut", "clean", "rotary", "attention", "norms", "ports")
CAPACITIES = (11, 16)
"""The second decoding step moves from the first to the second."""


@pytest.mark.parametrize("name", ["llama-torchdyn-op18", "gpt2-torchdyn-op18"])
@pytest.mark.parametrize("chunk", [1, 4, 9])
def test_stages_agree_with_the_exporter(name: str, chunk: int, tmp_path: Path) -> None:
    options = BuildOptions(chunk=chunk, max_prompt_len=10, capacities=CAPACITIES)
    graphs = build(CORPUS / name / "model.onnx", options, dump_after=STAGES, dump_dir=tmp_path)
    reference = np.load(CORPUS / name / "ref.npz")
    prompt, generated = reference["prompt_ids"].reshape(-1), reference["generated_ids"].reshape(-1)
    stages = STAGES if chunk == 4 else ("fold", "ports")
    for stage in stages:
        staged = StagedModel(graphs, tmp_path, stage)
        np.testing.assert_allclose(staged.prompt(prompt), reference["prefill/out/logits"], rtol=1e-3, atol=1e-4)
        for step, token in enumerate(generated, 1):
            logits = staged.token(int(token), len(prompt) + step - 1)
            np.testing.assert_allclose(logits, reference[f"decode{step}/out/logits"], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["llama-torchdyn-op18", "gpt2-torchdyn-op18"])
def test_stages_of_the_whole_model_agree_with_the_exporter(name: str, tmp_path: Path) -> None:
    graphs = build(CORPUS / name / "model.onnx", dump_after=MODEL_STAGES, dump_dir=tmp_path, stop_after="measure")
    assert graphs.entries == []
    reference = np.load(CORPUS / name / "ref.npz")
    prefix = "prefill/in/"
    given = {key.removeprefix(prefix): reference[key] for key in reference.files if key.startswith(prefix)}
    for stage in MODEL_STAGES:
        runner = session(tmp_path / f"{stage}.onnx")
        feeds = {value.name: given[value.name.removeprefix("state.")] for value in runner.get_inputs()}
        (logits,) = runner.run(["logits"], feeds)
        np.testing.assert_allclose(logits, reference["prefill/out/logits"], rtol=1e-3, atol=1e-4)
