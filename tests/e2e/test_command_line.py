"""The embedded model through the command line, and through `python -m npurt`: the same answer, and the limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.cli import main
from npuc.cli.blobs import DEFAULT_MODEL

IDS = [0, 365, 13, 269, 401]


@pytest.fixture(scope="module")
def blob(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model, small: prompts up to 10 tokens in chunks of 4, capacities 8 and 14."""
    path = tmp_path_factory.mktemp("blob") / "model.npu"
    words = "--max-prompt-len 10 --chunk 4 --capacities 8,14 --min-response-len 4"
    assert main(["compile", str(DEFAULT_MODEL), "-o", str(path), *words.split()]) == 0
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["run", *(str(word) for word in words), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_both_programs_give_the_same_answer(blob: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = " ".join(map(str, IDS))
    found = run(capsys, blob, "--prompt-ids", ids, "--max-new-tokens", "6")
    words = [sys.executable, "-m", "npurt", "run", blob, "--prompt-ids", ids, "--max-new-tokens", "6", "--json"]
    other = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    for key in ("tokens", "text", "stop_reason"):
        assert found[key] == other[key]
    assert len(found["tokens"]) == 6 and found["stop_reason"] == "max_tokens"


def test_text_is_what_the_tokenizer_says(blob: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    reference = tokenizers.Tokenizer.from_file(str(DEFAULT_MODEL / "tokenizer.json"))
    prompt = "In the beginning"
    found = run(capsys, blob, "--prompt", prompt, "--max-new-tokens", "8")
    assert found["text"] == reference.decode(found["tokens"])
    ids = " ".join(map(str, reference.encode(prompt).ids))
    assert found["tokens"] == run(capsys, blob, "--prompt-ids", ids, "--max-new-tokens", "8")["tokens"]


@pytest.mark.parametrize("count", [1, 4, 9, 10])
def test_a_full_context_gives_capacity_minus_prompt_plus_one(
    blob: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    ids = " ".join(map(str, (IDS * 2)[:count]))
    found = run(capsys, blob, "--prompt-ids", ids, "--max-new-tokens", "99")
    assert (len(found["tokens"]), found["stop_reason"]) == (14 - count + 1, "context_full")


def test_a_forced_answer_has_the_logits_of_a_prompt(
    blob: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Rows fed one by one and rows of a prompt are the same rows of the same model."""
    whole, split = tmp_path / "whole.npz", tmp_path / "split.npz"
    run(capsys, blob, "--prompt-ids", " ".join(map(str, IDS)), "--max-new-tokens", "1", "--logits", whole)
    run(capsys, blob, "--prompt-ids", "0 365", "--force-ids", " ".join(map(str, IDS[2:])), "--logits", split)
    with np.load(whole) as one, np.load(split) as two:
        assert one["prompt"].shape == (5, 2048) and one["step"].shape == (0, 2048)
        assert two["prompt"].shape == (2, 2048) and two["step"].shape == (3, 2048)
        joined = np.concatenate([two["prompt"], two["step"]])
        np.testing.assert_allclose(joined, one["prompt"], atol=0.05)  # f16; logits reach 10


def test_diff_sees_a_change_of_the_chunk(blob: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "other.npu"
    words = "--max-prompt-len 10 --chunk 5 --capacities 8,14 --min-response-len 4"
    assert main(["compile", str(DEFAULT_MODEL), "-o", str(other), *words.split()]) == 0
    assert main(["disasm", str(blob), "-o", str(tmp_path / "blob.txt")]) == 0
    assert main(["diff", str(blob), str(tmp_path / "blob.txt")]) == 0
    capsys.readouterr()
    assert main(["diff", str(blob), str(other)]) == 1
    assert "llm.chunk" in capsys.readouterr().out
