"""`npuc doctor`: what it finds, and what would fix it."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from npuc import host
from npuc.cli import doctor
from npurt import blas
from tests.unit.cli.conftest import Runner


@pytest.fixture(autouse=True)
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, a known BLAS, memory enough, nothing forced."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(blas, "loaded", lambda: blas.Blas("Haswell", 2))
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 8_000_000_000)
    for name in doctor.FORCING:
        monkeypatch.delenv(name, raising=False)


def without(monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    def version(name: str) -> str:
        if name in missing:
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor, "version", version)


def test_a_sound_installation(npuc: Runner, tmp_path: Path) -> None:
    (tmp_path / "npuc").mkdir()
    (tmp_path / "npuc" / "default-1.npu").write_bytes(bytes(2_500_000))
    result = npuc("doctor")
    assert result.code == 0 and result.err == ""
    assert result.out.startswith("npuc 0.1.0, Python 3.")
    assert "  blas         OpenBLAS Haswell, threads: 2\n" in result.out
    assert ", 8.0 GB free\n" in result.out
    assert f"  cache        {tmp_path / 'npuc'}, 2.5 MB\n" in result.out
    assert result.out.endswith("\nno problems\n")
    found = json.loads(npuc("doctor", "--json").out)
    assert found["good"] and found["packages"]["numpy"] and found["problems"] == [] and found["model"]
    assert found["cache"] == {"folder": str(tmp_path / "npuc"), "bytes": 2_500_000, "writable": True}
    assert (found["blas_kernel"], found["threads"], found["free_memory_bytes"]) == ("Haswell", 2, 8_000_000_000)


def test_a_missing_package_is_named_with_its_fix(npuc: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "lief")
    result = npuc("doctor")
    assert result.code == 1
    assert "  lief         missing\n" in result.out
    assert "problem: the package lief is missing\n  fix: reinstall npuc: pip install" in result.out
    assert json.loads(npuc("doctor", "--json").out)["good"] is False


def test_a_missing_extra_is_no_problem(npuc: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "tokenizers", "onnxruntime", "gguf")
    result = npuc("doctor")
    assert result.code == 0 and result.out.endswith("\nno problems\n")
    assert "  chat         missing tokenizers: pip install 'npuc[chat]' (for prompts as text)\n" in result.out
    assert "  check        missing onnxruntime: pip install 'npuc[check]' (for npuc check)\n" in result.out
    assert "  models       missing gguf: pip install 'npuc[models]' (for npuc models pull)\n" in result.out
    extras = json.loads(npuc("doctor", "--json").out)["extras"]
    assert extras == {"chat": False, "check": False, "models": False, "rich": True, "test": True}


def test_a_missing_model_is_a_fault(npuc: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DEFAULT_MODEL", tmp_path)
    result = npuc("doctor")
    assert result.code == 1
    assert "problem: the embedded model is missing\n  fix: reinstall npuc\n" in result.out


def test_what_npuc_can_work_with_is_said_and_good(
    npuc: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = tmp_path / "file" / "npuc"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setattr(blas, "loaded", lambda: None)
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 500_000_000)
    result = npuc("doctor")
    assert result.code == 0
    assert result.out.split("problem: ")[1:] == [
        f"the cache folder {cache} cannot be written: the embedded model is compiled anew each time\n"
        "  fix: set XDG_CACHE_HOME to a folder of yours\n",
        "0.5 GB of memory are free, which is little for more than small models\n  fix: end other programs\n",
        "NumPy's BLAS is no known OpenBLAS: its threads cannot be set for exact mode\n"
        "  fix: pip install --force-reinstall numpy brings one\n",
        "OPENBLAS_CORETYPE=Prescott overrides what OpenBLAS finds out about this processor\n"
        "  fix: unset OPENBLAS_CORETYPE\n",
    ]
