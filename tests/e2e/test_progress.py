"""What a compile and a comparison say about how far they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.cli.blobs import DEFAULT_MODEL
from npuc.compare import Request, check
from npuc.driver import CompileOptions, compile_to_blob
from npuc.graph.pipeline import STEP_NAMES
from tests.support.models import CORPUS

SMALL = CompileOptions(max_prompt_len=8, min_response_len=4, chunk=4, capacities=(8, 12))


class Told:
    """Keeps what is said."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, float | None]] = []

    def __call__(self, step: str, share: float | None = None) -> None:
        self.steps.append((step, share))

    def shares(self, beginning: str) -> list[float]:
        return [share for step, share in self.steps if step.startswith(beginning) and share is not None]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(step for step, _ in self.steps))


def test_a_compile_says_each_step_each_entry_and_each_megabyte(tmp_path: Path) -> None:
    told = Told()
    summary = compile_to_blob(DEFAULT_MODEL, tmp_path / "m.npu", SMALL, told)
    assert summary is not None
    written = [name for name in told.names if name.startswith("write ")]
    assert told.names == [
        "reading the model",
        *(f"graph, {step} done" for step in STEP_NAMES),
        *(f"lower and schedule {entry}" for entry in ("prefill", "generate.8", "generate.12", "head")),
        *written,
    ]
    assert told.shares("graph")[-1] == 1.0 and told.shares("lower") == [0.0, 0.25, 0.5, 0.75]
    assert written[0].startswith("write 0 of ") and written[0].endswith(" MB")
    shares = told.shares("write")
    assert shares == sorted(shares) and shares[0] == 0.0 and 0.5 < shares[-1] < 1.0


def test_a_comparison_says_what_it_is_at() -> None:
    pytest.importorskip("onnxruntime")
    told = Told()
    model = CORPUS / "llama-torchdyn-op18" / "model.onnx"
    options = CompileOptions(precision="f32", max_prompt_len=8, min_response_len=4, chunk=4, capacities=(12,))
    result = check(Request(model, options, tokens=1, everything=True, mode="fast", report=told))
    assert result.agrees
    named = [name for name in told.names if not name.startswith(("graph, ", "lower and schedule "))]
    assert named == [
        "running the model in onnxruntime",
        "running the program on the device",
        "running the steps of the graph in onnxruntime",
        "compiling a program that writes every value",
        "comparing the node groups",
    ]
