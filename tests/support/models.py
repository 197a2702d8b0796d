"""Compiling and running whole models in tests: one call each, so that a test reads as what it asserts."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent.parent / "data"
CORPUS = DATA / "corpus"
CASES = Path(__file__).parent.parent / "cases"


@dataclass(frozen=True)
class Answer:
    """What a forced run gave: logits of each prompt position and after each fed token, and the greedy choices."""

    prompt: np.ndarray
    step: np.ndarray
    tokens: list[int]


def compile_to(path: Path, model: Path, **options: Any) -> Path:
    """Compiles `model` to `path` and returns it."""
    from npuc.driver import CompileOptions, compile_to_blob

    compile_to_blob(model, path, CompileOptions(**options))
    return path


def answer(blob: Path, prompt: Sequence[int], fed: Sequence[int], mode: str = "exact") -> Answer:
    """Feeds the prompt and then `fed`, whatever the model would choose; collects all logits."""
    import npurt
    from npurt.llm import Request, Session

    image = npurt.load(blob)
    request = Request(max_new_tokens=len(fed) + 1, force_ids=tuple(fed), collect_logits=True, eos=())
    result = Session(image, npurt.open_device(image, mode)).generate(list(prompt), request).finish()
    assert result.prompt_logits is not None and result.step_logits is not None
    return Answer(result.prompt_logits, result.step_logits, result.tokens)


def run_graph(blob: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One run of entry `main`."""
    import npurt

    return dict(npurt.Device(npurt.load(blob)).run("main", dict(inputs)))


def stateful_form(model: Path, folder: Path, dims: Mapping[str, int] | None = None) -> Path:
    """The pair-form model in its ReadValue/Assign form, as a file in `folder`."""
    import onnx_ir as ir

    from npuc.frontend import load
    from npuc.graph.state import pairs_to_state

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    ir.save(pairs_to_state(load(model).model, dims), path)
    return path


def make_case(name: str, folder: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Runs the case generator `name`; the model's path and the arrays of its expected.npz."""
    sys.path.insert(0, str(CASES))
    argv, sys.argv = sys.argv, [name, str(folder)]
    try:
        spec = importlib.util.spec_from_file_location(f"case_{name}", CASES / f"{name}.py")
        assert spec is not None and spec.loader is not None
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    finally:
        sys.argv = argv
        sys.path.remove(str(CASES))
    with np.load(folder / name / "expected.npz") as arrays:
        return folder / name / "model.onnx", {key: arrays[key] for key in arrays.files}


def reference(name: str) -> tuple[list[int], list[int], np.ndarray, np.ndarray]:
    """Of a corpus model: prompt ids, generated ids, logits of the prompt, logits of the decode steps."""
    with np.load(CORPUS / name / "ref.npz") as ref:
        steps = sum(key.startswith("decode") and key.endswith("/out/logits") for key in ref.files)
        decode = np.concatenate([ref[f"decode{k + 1}/out/logits"][0] for k in range(steps)])
        return (
            ref["prompt_ids"].reshape(-1).tolist(),
            ref["generated_ids"].reshape(-1).tolist(),
            ref["prefill/out/logits"][0],
            decode,
        )


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Cosine of each row."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))
