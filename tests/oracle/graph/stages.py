"""Runs the stages of a language model in onnxruntime, token by token, the way the device will."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime as ort

from npuc.graph.entry import ModelGraphs

GARBAGE = 1e4
"""What slots without a token hold at the start: a mask that lets one through shows."""


def session(model: Path | bytes) -> ort.InferenceSession:
    """A session without graph optimisations: the graph as saved is what runs."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(model) if isinstance(model, Path) else model, options, ["CPUExecutionProvider"])


@dataclass
class StagedModel:
    """The entries of one stage, read from the files of `build(..., dump_after=..., dump_dir=folder)`."""

    graphs: ModelGraphs
    folder: Path
    step: str
    garbage: float = GARBAGE
    states: dict[str, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        files = {entry.label: self.folder / f"{self.step}.{entry.label}.onnx" for entry in self.graphs.entries}
        self.sessions = {label: session(file) for label, file in files.items() if file.exists()}
        self.states = {s.id: np.full(s.shape, self.garbage, s.dtype.storage) for s in self.graphs.states}

    def run(self, label: str, ids: np.ndarray, n_past: int, n_new: int) -> np.ndarray:
        """One step of an entry: the rows of `hidden` or `logits`; the new rows go into the caches."""
        runner = self.sessions[label]
        slots = self.graphs.entry(label).capacity
        feeds: dict[str, np.ndarray] = {"n_past": np.array(n_past), "n_new": np.array(n_new)}
        for value in runner.get_inputs():
            if value.name.startswith("state."):
                feeds[value.name] = self.states[value.name.removeprefix("state.")][:, :, :slots]
            elif value.name not in feeds:
                feeds[value.name] = ids
        names = [value.name for value in runner.get_outputs()]
        outputs = dict(zip(names, runner.run(names, feeds), strict=True))
        for key, held in self.states.items():
            rows = outputs[f"next.{key}"][:, :, -ids.shape[1] :]
            held[:, :, n_past : n_past + n_new] = rows[:, :, :n_new]
        return outputs["hidden"] if "hidden" in outputs else outputs["logits"]

    def logits(self, rows: np.ndarray) -> np.ndarray:
        """Logits [1, n, V] of rows of `hidden`, one run of the head each; stages before the cut have them already."""
        head = self.sessions.get("head")
        if head is None:
            return rows
        return np.concatenate([head.run(["logits"], {"hidden": row[None, None]})[0] for row in rows[0]], axis=1)

    def prompt(self, ids: np.ndarray, n_past: int = 0) -> np.ndarray:
        """Logits of all tokens of a prompt, fed in chunks with a padded tail."""
        chunk, result = self.graphs.entry("prefill").rows, []
        for start in range(0, len(ids), chunk):
            piece = ids[start : start + chunk]
            padded = np.zeros((1, chunk), np.int64)
            padded[0, : len(piece)] = piece
            rows = self.run("prefill", padded, n_past + start, len(piece))
            result.append(self.logits(rows[:, : len(piece)]))
        return np.concatenate(result, axis=1)

    def token(self, token: int, n_past: int) -> np.ndarray:
        """Logits [1, 1, V] after one more token, by the smallest capacity that holds it."""
        assert self.graphs.llm is not None
        capacity = next(c for c in self.graphs.llm.capacities if c > n_past)
        return self.logits(self.run(f"generate.{capacity}", np.array([[token]], np.int64), n_past, 1))
