"""The benchmarks on a tiny model: they run, compare equal computations, and start from a clean environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import environment
from benchmarks.folder import FolderDecoder, NoPlainForm
from benchmarks.model import main, measure
from benchmarks.rounds import Rounds, decode_rounds, differences, prefill_rounds
from benchmarks.runners import Ort, Plain
from benchmarks.stages import Stage, StageFailed
from benchmarks.table import Report
from npuc.models.gguf_file import read_gguf
from npuc.models.pull import write_folder
from npuc.progress import silent
from tests.unit.models_room import tiny

ROOT = Path(__file__).resolve().parents[3]
VOCAB = 1 << 5


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model as `npuc models pull` writes it."""
    path = tmp_path_factory.mktemp("exported")
    write_folder(read_gguf(tiny.write_gguf(path / "tiny.gguf")), path, silent)
    return path


def test_plain_numpy_computes_what_onnxruntime_does(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    plain, ort = Plain(folder, 12), Ort(folder, 1)
    ids = np.array([3, 1, 4, 1, 5])
    np.testing.assert_allclose(plain.prompt(ids), ort.prompt(ids), atol=1e-4)
    for past, token in enumerate((9, 2), start=5):
        np.testing.assert_allclose(plain.token(token, past), ort.token(token, past), atol=1e-4)


def test_a_model_of_another_kind_has_no_plain_form(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NoPlainForm, match=r"config\.json: FileNotFoundError"):
        FolderDecoder(tmp_path, 4)
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    other = ROOT / "tests" / "data" / "corpus" / "gpt2-torchdyn-op18" / "model.onnx"
    (tmp_path / "model.onnx").write_bytes(other.read_bytes())
    with pytest.raises(NoPlainForm, match="the weights do not have the names of `npuc models pull`"):
        FolderDecoder(tmp_path, 4)


def test_the_whole_command_prints_its_table(folder: Path) -> None:
    pytest.importorskip("onnxruntime")
    words = [sys.executable, "-m", "benchmarks.model", str(folder), "--prompts", "3,5", "--rounds", "2"]
    forced = {**os.environ, "OPENBLAS_CORETYPE": "Prescott", "OPENBLAS_L2_SIZE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, env=forced)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("BLAS kernel: ") and "Prescott" not in lines[0]
    assert lines[2] == "|  | npuc | onnxruntime | plain NumPy | npuc / onnxruntime | npuc / plain NumPy |"
    assert [line.split(" | ")[0] for line in lines[4:11]] == [
        "| compile, s", "| compile, peak MB", "| load and first token, s", "| load, peak MB",
        "| prefill 3, tokens/s", "| prefill 5, tokens/s", "| decode after 3, tokens/s",
    ]  # fmt: skip
    for line in lines[6:11]:
        assert all(float(cell) > 0 for cell in line.strip("| ").split(" | ")[1:])
    assert lines[-1].startswith("Largest difference of a prompt's last logits to npuc's, relative: onnxruntime ")


def test_a_model_that_does_not_compile_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(StageFailed, match=f"^compile {tmp_path} .*\\nerror: model.onnx: not an ONNX model$"):
        measure(tmp_path, [4], 2, 1, "f32")


def test_numpy_must_not_be_loaded_before() -> None:
    with pytest.raises(RuntimeError, match="NumPy is loaded: its BLAS has read its variables already"):
        environment.as_found(2)
    with pytest.raises(SystemExit):
        main(["--help"])


class Counted:
    """A runner that only remembers what it was asked for."""

    def __init__(self, offset: float = 0.0) -> None:
        self.prompts: list[list[int]] = []
        self.tokens: list[tuple[int, int]] = []
        self.offset = offset

    def prompt(self, ids: np.ndarray) -> np.ndarray:
        self.prompts.append(ids.tolist())
        return np.array([2.0 + self.offset, 1.0])

    def token(self, token: int, past: int) -> np.ndarray:
        self.tokens.append((token, past))
        return np.zeros(2)


def test_rounds_take_turns_with_equal_work() -> None:
    one, two = Counted(), Counted(0.5)
    rounds = prefill_rounds({"one": one, "two": two}, 4, 3, VOCAB)
    assert one.prompts == two.prompts and len(one.prompts) == 4, "one more than counts"
    assert len({tuple(prompt) for prompt in one.prompts}) == 4, "each round has a prompt of its own"
    assert [len(values) for values in rounds.seconds.values()] == [3, 3]
    decode_rounds({"one": one, "two": two}, 4, 2, VOCAB)
    assert one.tokens == two.tokens and [past for _, past in one.tokens] == [4, 5, 6]
    assert differences({"one": one, "two": two}, 4, VOCAB) == {"one": 0.0, "two": 0.25}


def test_a_ratio_is_taken_within_each_round() -> None:
    rounds = Rounds("decode", 1, {"npuc": [1.0, 10.0, 2.0], "other": [2.0, 5.0, 4.0]})
    assert (rounds.rate("npuc"), rounds.rate("other")) == (0.5, 0.25)
    assert rounds.ratio("npuc", "other") == 2.0


def test_unknown_memory_leaves_a_cell_empty() -> None:
    rounds = Rounds("decode after 3", 1, {"npuc": [0.5], "other": [0.25]})
    report = Report(
        Stage(2.0, None), {"npuc": Stage(1.0, 300.0), "other": Stage(2.0, None)}, [rounds], {"other": 0.0}, 2
    )
    assert list(report.lines())[2:9] == [
        "|  | npuc | other | npuc / other |",
        "| --- | ---: | ---: | ---: |",
        "| compile, s | 2.00 |  |  |",
        "| compile, peak MB |  |  |  |",
        "| load and first token, s | 1.00 | 2.00 | 0.50 |",
        "| load, peak MB | 300 |  |  |",
        "| decode after 3, tokens/s | 2.0 | 4.0 | 0.50 |",
    ]
