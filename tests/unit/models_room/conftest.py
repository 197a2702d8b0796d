"""A recipe for the tiny model, as GGUF and as a wheel."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from npuc.cli import main
from npuc.models import Recipe
from tests.unit.models_room import tiny


@dataclass(frozen=True)
class Source:
    """The tiny model's files and the recipe that accepts them."""

    gguf: Path
    wheel: Path
    recipe: Recipe


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("tiny")
    gguf = tiny.write_gguf(folder / "Tiny.gguf")
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(gguf, "tiny_model/Tiny.gguf")
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, gguf)]
    recipe = Recipe(
        name="tiny", summary="A tiny model", license="Apache-2.0", package="tiny-model", version="1.0",
        member="tiny_model/Tiny.gguf", wheel_sha256=digests[0], gguf_sha256=digests[1],
        wheel_bytes=wheel.stat().st_size, gguf_bytes=gguf.stat().st_size, folder_bytes=1_000_000,
    )  # fmt: skip
    return Source(gguf, wheel, recipe)


@dataclass(frozen=True)
class Outcome:
    """What one command line did."""

    code: int
    out: str
    err: str


@pytest.fixture
def npuc(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs a command line in this process."""

    def run(*words: str | Path) -> Outcome:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
