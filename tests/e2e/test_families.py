"""Decoder families as their exporters write them, against onnxruntime: prompt in uneven chunks, then token by token."""

from __future__ import annotations

import pytest

from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions
from tests.support.models import DATA

FAMILIES = sorted(path.stem for path in (DATA / "families").glob("*.onnx"))
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 7, 8]
TOLERANCE = 1e-4


def largest_error(name: str, chunk: int, mode: str = "exact") -> float:
    """In f32, over the logits of the prompt and of ten tokens behind it; the cache changes its capacity on the way."""
    options = CompileOptions(precision="f32", max_prompt_len=12, capacities=(14, 24), chunk=chunk)
    result = check(Check(DATA / "families" / f"{name}.onnx", options, prompt=PROMPT, tokens=10, mode=mode))
    assert result.agrees
    return max(part.max_abs for part in result.parts.values())


def test_the_list_is_complete():
    assert {name.split("-")[0] for name in FAMILIES} == {
        "bloom", "cohere", "falcon", "gemma3", "gptj", "granite", "llama3", "neox", "opt", "phi", "phi3", "smollm3",
    }  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name):
    assert largest_error(name, 4) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(("chunk", "mode"), [(1, "exact"), (3, "fast"), (7, "exact"), (12, "fast")])
@pytest.mark.parametrize("name", FAMILIES)
def test_family_in_other_chunks(name, chunk, mode):
    assert largest_error(name, chunk, mode) < TOLERANCE
