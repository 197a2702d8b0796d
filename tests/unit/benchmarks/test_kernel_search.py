"""The benchmark of searches prints what it says."""

import re
from pathlib import Path

import pytest

from benchmarks.kernel_search import main
from tests.support.decoders import decoder


def test_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(decoder(tmp_path / "model.onnx", "concat"))]) == 0
    kernels, traces, each, search = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"distinct kernels   [1-9]\d*", kernels)
    assert int(traces.split()[-1]) >= int(kernels.split()[-1])
    assert re.fullmatch(r"ms per trace       \d+\.\d, the slowest \d+\.\d", each)
    assert re.fullmatch(r"search, s          \d+\.\d\d cold, \d+\.\d\d with answers on disk", search)
