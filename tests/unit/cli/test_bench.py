"""`npuc bench`: what it measures, by a device that counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import npurt
from npuc.bench import Rates
from tests.unit.cli.conftest import Runner
from tests.unit.llm.fake import FakeDevice, FakeImage


@pytest.fixture
def runs(image: FakeImage, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, NDArray[Any]]]:
    """(entry, n_past, first input) of every run; entries give notes through `warn`."""
    seen: list[tuple[str, int, NDArray[Any]]] = []

    class Counting(FakeDevice):
        def run(
            self, entry: str, inputs: Mapping[str, NDArray[Any]], *, n_past: int = 0, n_new: int | None = None
        ) -> dict[str, NDArray[Any]]:
            seen.append((entry, n_past, np.array(next(iter(inputs.values())))))
            return dict(super().run(entry, inputs, n_past=n_past, n_new=n_new))

    def open_device(image: FakeImage, mode: str, warn: Any) -> Counting:
        warn(f"the mode is {mode}")
        return Counting(image)

    monkeypatch.setattr(npurt, "open_device", open_device)
    return seen


def test_json_has_the_documented_fields(npuc: Runner, runs: list[Any], blob: Path) -> None:
    result = npuc("bench", blob, "--prompt-tokens", "6", "--gen-tokens", "5", "--repeat", "2", "--json")
    assert (result.code, result.err) == (0, "note: the mode is fast\n")
    found = json.loads(result.out)
    assert list(found) == [
        "meaning", "mode", "prompt_tokens", "gen_tokens", "repeat", "load_s", "prepare_s", "peak_rss_mb", "blas_kernel",
        "threads", "cores", "constants_mb", "constants_budget_mb",
        "prefill_tokens_per_s", "prefill_tokens_per_s_min", "prefill_tokens_per_s_max",
        "decode_tokens_per_s", "decode_tokens_per_s_min", "decode_tokens_per_s_max",
    ]  # fmt: skip
    assert found["meaning"] == "speed of the simulator on this host, not of the NPU"
    assert (found["mode"], found["prompt_tokens"], found["gen_tokens"], found["repeat"]) == ("fast", 6, 5, 2)
    for name in ("prefill", "decode"):
        low, middle, high = (found[f"{name}_tokens_per_s{end}"] for end in ("_min", "", "_max"))
        assert 0 < low <= middle <= high
    assert found["peak_rss_mb"] is None or found["peak_rss_mb"] > 10


def test_every_entry_runs_before_the_clock_and_prompts_are_new(npuc: Runner, runs: list[Any], blob: Path) -> None:
    assert npuc("bench", blob, "--prompt-tokens", "8", "--gen-tokens", "5", "--repeat", "2").code == 0
    warm, first, second = runs[:4], runs[4:17], runs[17:]
    assert [entry for entry, _, _ in warm] == ["prefill", "head", "generate.10", "generate.16"]
    # 8 tokens of prompt in chunks of 4, then 5 fed ones, each followed by the head
    fed = ["generate.10", "head"] * 2 + ["generate.16", "head"] * 3
    for each in (first, second):
        assert [entry for entry, _, _ in each] == ["prefill", "prefill", "head", *fed]
    assert not np.array_equal(first[0][2], second[0][2])


def test_people_are_told_that_it_is_the_hosts_speed(npuc: Runner, runs: list[Any], blob: Path) -> None:
    result = npuc("bench", blob, "--prompt-tokens", "4", "--gen-tokens", "1", "--repeat", "1", "--mode", "exact")
    assert result.err == "note: the mode is exact\n"
    lines = result.out.splitlines()
    assert lines[0] == "speed of the simulator on this host, not of the NPU"
    assert [line.split()[0] for line in lines[1:]] == ["prefill", "decode", "load", "memory", "host"]
    assert lines[-1].endswith("exact mode, 1 repeats")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prompt-tokens", "9"), "error: --prompt-tokens is 9: this blob takes at most 8\n"),
        (
            ("--prompt-tokens", "8", "--gen-tokens", "9"),
            "error: --gen-tokens is 9: after a prompt of 8 this blob has places for 8 (its largest capacity is 16)\n",
        ),
    ],
)
def test_what_the_blob_cannot_hold_is_refused(
    npuc: Runner, runs: list[Any], blob: Path, words: tuple[str, ...], message: str
) -> None:
    result = npuc("bench", blob, *words)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"note: the mode is fast\n{message}"
    assert runs == []


def test_rates_are_tokens_by_seconds() -> None:
    assert Rates.of(8, [2.0, 1.0, 4.0]) == Rates(4.0, 2.0, 8.0)
