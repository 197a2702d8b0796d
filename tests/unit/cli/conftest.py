"""The command line with a compiler and a device of the test's own, so that only the command line is tested."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuc.answers import AnswerCache
from npuc.cli import main
from npuc.progress import Report
from tests.unit.llm.fake import FakeDevice, FakeImage


@dataclass
class Outcome:
    """What one command line did."""

    code: int
    out: str
    err: str


Runner = Callable[..., Outcome]


@pytest.fixture
def npuc(capsys: pytest.CaptureFixture[str]) -> Runner:
    """Runs a command line in this process."""

    def run(*words: str | Path) -> Outcome:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@dataclass(frozen=True)
class FakeOptions:
    """The options that the fake compiler was called with."""

    target: str
    precision: str
    requantise: str | None
    max_prompt_len: int | None
    min_response_len: int | None
    chunk: int | None
    capacities: tuple[int, ...] | None
    dims: Mapping[str, int]
    state_rows: Mapping[str, int]
    attention: str | None = None
    llm: bool | None = None
    dump_after: tuple[str, Path] | None = None
    stop_after: str | None = None
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()
    host_ops: tuple[str, ...] = ()
    choices: Path | None = None
    answers: AnswerCache | None = None


@dataclass
class FakeSummary:
    lines: list[str] = field(default_factory=lambda: ["chunk       4 rows"])
    report: list[str] = field(default_factory=lambda: ["chunk 128 is more than the prompt limit 8: 8 is used"])
    blob_bytes: int = 7
    seconds: dict[str, float] = field(default_factory=lambda: {"total": 0.5})


class Compiler:
    """Writes a file that begins as a blob does, and remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Path, Path | None, FakeOptions]] = []
        self.error: BaseException | None = None

    def compile_model(self, model: Path, options: FakeOptions, report: Report) -> None:
        self.calls.append((model, None, options))

    def compile_to_blob(
        self, model: Path, blob: Path, options: FakeOptions, report: Report, nodes: Path | None = None
    ) -> FakeSummary:
        self.calls.append((model, blob, options))
        if self.error is not None:
            raise self.error
        blob.write_bytes(b"\x7fELF...")
        return FakeSummary()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    """Stands in for npuc.driver; the cache of the embedded model lies in tmp_path."""
    fake = Compiler()
    module = ModuleType("npuc.driver")
    vars(module).update(
        CompileOptions=FakeOptions, compile_model=fake.compile_model, compile_to_blob=fake.compile_to_blob
    )
    monkeypatch.setitem(sys.modules, "npuc.driver", module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return fake


class EchoDevice:
    """Returns its inputs under the name out.NAME, and remembers the call."""

    def __init__(self) -> None:
        self.call: tuple[str, int, int | None] | None = None

    def run(
        self, entry: str, inputs: Mapping[str, NDArray[Any]], *, n_past: int = 0, n_new: int | None = None
    ) -> dict[str, NDArray[Any]]:
        self.call = (entry, n_past, n_new)
        return {f"out.{name}": np.asarray(value) for name, value in inputs.items()}


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> FakeImage:
    """Stands in for npurt.load and npurt.open_device: any blob holds the model of the session's tests; meta["modes"]
    are the modes that were asked for."""
    import npurt

    fake = FakeImage()

    def open_device(image: FakeImage, mode: str, warn: Callable[[str], None]) -> FakeDevice:
        fake.meta["modes"] = [*fake.meta.get("modes", []), mode]
        return FakeDevice(image)

    monkeypatch.setattr(npurt, "load", lambda path: fake, raising=False)
    monkeypatch.setattr(npurt, "open_device", open_device, raising=False)
    return fake


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> EchoDevice:
    """Stands in for npurt.load and npurt.open_device: any blob gives its inputs back."""
    import npurt

    fake = EchoDevice()
    monkeypatch.setattr(npurt, "load", lambda path: None, raising=False)
    monkeypatch.setattr(npurt, "open_device", lambda image, mode, warn: fake, raising=False)
    return fake


@pytest.fixture
def blob(tmp_path: Path) -> Path:
    """A file that begins as a blob does."""
    path = tmp_path / "model.npu"
    path.write_bytes(b"\x7fELF...")
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that does not."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x0a")
    return path
