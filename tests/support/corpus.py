"""A folder of exported models with references: index.json, and per model `model.onnx` and `ref.npz`.

The folder is tests/data/corpus, or what the environment variable NPUC_CORPUS names: a larger one has an index with the
key "models", a list with each model's tolerance and the values of dims that its states leave open.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models import CORPUS

FOLDER = Path(os.environ.get("NPUC_CORPUS", CORPUS))


@dataclass(frozen=True)
class CorpusModel:
    """atol, rtol: error allowed of float32 logits. dims: of states, by name. rounds: whether values of a run
    become codes. chunked: with scales that span a run, so that logits change with the pieces that a prompt is fed in.
    """

    name: str
    atol: float = 1e-3
    rtol: float = 1e-3
    dims: dict[str, int] = field(default_factory=dict)
    rounds: bool = False
    chunked: bool = False

    @property
    def path(self) -> Path:
        return FOLDER / self.name / "model.onnx"


@dataclass(frozen=True)
class Reference:
    """Logits [rows, V] of the prompt (or of its last row alone) and of each decode step; the greedy picks with their
    leads."""

    prompt_ids: list[int]
    generated: list[int]
    prompt: np.ndarray
    steps: np.ndarray
    gaps: np.ndarray


def models() -> list[CorpusModel]:
    """Every model of the folder, in the order of its index."""
    index = json.loads((FOLDER / "index.json").read_text())
    if "models" not in index:
        return [CorpusModel(name) for name in index]
    return [_of_row(row) for row in index["models"]]


def _of_row(row: dict[str, Any]) -> CorpusModel:
    tolerance, dims = row["tolerance"], row.get("dim_values", {})
    rounds, chunked = (name in row["ops"] for name in ("QuantizeLinear", "DynamicQuantizeLinear"))
    if tolerance["kind"] == "quantised":  # a half that rounds the other way moves a code
        atol, rtol = max(0.05, 2 * tolerance["noise_abs"]), 0.0
    else:
        atol, rtol = tolerance["atol"], tolerance["rtol"]
    return CorpusModel(row["name"], atol, rtol, dims, rounds, chunked)


def reference(model: CorpusModel) -> Reference:
    """What onnxruntime gave for the model's prompt, fed at once, and for the greedy tokens behind it."""
    with np.load(FOLDER / model.name / "ref.npz") as ref:
        count = ref["generated_ids"].size
        steps = np.concatenate([ref[f"decode{k + 1}/out/logits"][0] for k in range(count)])
        ids, generated = (ref[key].reshape(-1).tolist() for key in ("prompt_ids", "generated_ids"))
        return Reference(ids, generated, ref["prefill/out/logits"][0], steps, ref["greedy_gap"])
