"""BLAS threads: exact mode has one, fast mode what OpenBLAS chooses; in processes of their own, as NumPy loads once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from npurt import blas

CODE = """
import sys
from npuc.cli import main
code = main(sys.argv[1:])
from npurt import blas
print(blas.loaded().threads)
"""
MODULE = """
import sys
from npurt.__main__ import main
main(sys.argv[1:])
from npurt import blas
print(blas.loaded().threads)
"""
WORDS = {
    "run": ("{blob}", "--prompt-ids", "1"),
    "exec": ("{blob}", "--input", "{npz}", "--output", "{folder}/out.npz"),
    "bench": ("{blob}",),
}


def threads(code: str, words: list[str], variable: str | None) -> int:
    """Threads that BLAS has after a command; the blob is damaged, so that the mode is settled and nothing runs."""
    environment = {name: value for name, value in os.environ.items() if name != blas.THREADS_VARIABLE}
    if variable is not None:
        environment[blas.THREADS_VARIABLE] = variable
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    return int(done.stdout)


@pytest.fixture
def damaged(blob: Path, tmp_path: Path) -> dict[str, str]:
    import numpy as np

    np.savez(tmp_path / "in.npz", x=np.zeros(1))
    return {"blob": str(blob), "npz": str(tmp_path / "in.npz"), "folder": str(tmp_path)}


@pytest.fixture(autouse=True)
def two() -> None:
    if blas.loaded() is None or (os.cpu_count() or 1) < 2:
        pytest.skip("needs NumPy's OpenBLAS and two processors")


@pytest.mark.parametrize("name", list(WORDS))
def test_exact_mode_has_one(damaged: dict[str, str], name: str) -> None:
    words = [name, *(word.format(**damaged) for word in WORDS[name]), "--mode"]
    assert threads(CODE, [*words, "exact"], None) == 1


def test_a_given_number_stays(damaged: dict[str, str]) -> None:
    assert threads(CODE, ["bench", damaged["blob"], "--mode", "exact"], "2") == 2


def test_fast_mode_has_what_openblas_chooses(damaged: dict[str, str]) -> None:
    assert threads(CODE, ["bench", damaged["blob"], "--mode", "fast"], None) > 1


@pytest.mark.parametrize(("mode", "one"), [("exact", True), ("fast", False)])
def test_the_runtimes_own_program_does_the_same(damaged: dict[str, str], mode: str, one: bool) -> None:
    words = ["run", damaged["blob"], "--prompt-ids", "1", "--mode", mode]
    assert (threads(MODULE, words, None) == 1) == one
