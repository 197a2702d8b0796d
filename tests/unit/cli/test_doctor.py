"""`npuc doctor`."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from npuc.cli import doctor
from tests.unit.cli.conftest import Runner


def test_a_sound_installation(npuc: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = npuc("doctor")
    assert result.code == 0 and result.err == ""
    assert result.out.startswith("npuc 0.1.0, Python 3.")
    assert f"embedded model: present\ncache: {tmp_path / 'npuc'}\n" in result.out
    found = json.loads(npuc("doctor", "--json").out)
    assert found["good"] and found["packages"]["numpy"]


def test_a_missing_package_is_named(npuc: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name in ("lief", "tokenizers"):
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor, "version", version)
    result = npuc("doctor")
    assert result.code == 1
    assert "  lief         missing: reinstall npuc\n" in result.out
    assert "  tokenizers   not installed (extra npuc[chat])\n" in result.out
    assert json.loads(npuc("doctor", "--json").out)["good"] is False


def test_a_missing_model_is_a_fault(npuc: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DEFAULT_MODEL", tmp_path)
    result = npuc("doctor")
    assert result.code == 1
    assert "embedded model: missing: reinstall npuc\n" in result.out
