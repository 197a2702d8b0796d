"""What the commands must never write over: their own inputs, and what is no regular file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from npuc.cli.options import keep_inputs
from tests.support.graphs import written
from tests.unit.cli.conftest import Runner

RELU = "g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return written(tmp_path / "exported", RELU)


def test_an_output_that_is_the_input(model: Path, npuc: Runner) -> None:
    before = model.read_bytes()
    link = model.with_name("link.npu")
    link.symlink_to(model)
    tensors = model.with_name("in.npz")
    np.savez(tensors, x=np.zeros((2, 3), np.float32))
    lines = [
        (model, ("compile", model, "-o", model)),
        (link, ("compile", model, "-o", link)),
        (model, ("compile", model.parent, "-o", model)),
        (model, ("opt", model, "--step", "pairs-to-state", "-o", model)),
        (tensors, ("exec", model, "--input", tensors, "--output", tensors)),
        (model, ("exec", model, "--input", tensors, "--output", model)),
    ]
    for output, words in lines:
        found = npuc(*words)
        assert (found.code, found.out) == (2, "")
        assert found.err.splitlines()[0] == f"error: {output} is an input of this command: write to another file"
    assert model.read_bytes() == before


def test_blobs_in_an_exported_folder_may_be_written_again(model: Path, npuc: Runner) -> None:
    blob = model.with_name("model.npu")
    assert npuc("compile", model.parent, "-o", blob).code == 0
    assert npuc("compile", model.parent, "-o", blob).code == 0
    found = npuc("disasm", blob, "-o", blob)
    assert found.err.splitlines()[0] == f"error: {blob} is an input of this command: write to another file"
    keep_inputs(None, model)
    keep_inputs(blob, None)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_stays_a_pipe(model: Path, npuc: Runner) -> None:
    pipe, blob = model.with_name("pipe"), model.with_name("model.npu")
    os.mkfifo(pipe)
    assert npuc("compile", model, "-o", blob).code == 0
    said = f"error: {pipe}: is no regular file, and only such a file can be replaced"
    found = npuc("compile", model, "-o", pipe)
    assert (found.code, found.err.splitlines()[-1]) == (2, f"{said}; nothing was written")
    found = npuc("disasm", blob, "-o", pipe)
    assert (found.code, found.err.splitlines()[-1]) == (2, said)
    assert pipe.is_fifo()


def test_a_pipe_is_no_model(tmp_path: Path, npuc: Runner) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = npuc("compile", pipe, "-o", tmp_path / "m.npu")
    assert (found.code, found.err) == (3, f"error: {pipe}: neither a file nor a folder\n")


def test_opt_refuses_what_compile_refuses(tmp_path: Path, npuc: Runner) -> None:
    path = written(tmp_path, RELU.replace("Relu(x)", "Relu(never_made)"))
    found = npuc("opt", path, "--step", "pairs-to-state", "-o", tmp_path / "x.onnx")
    assert found.code == 3
    assert "reads 'never_made', a value that nothing makes" in found.err
    assert not (tmp_path / "x.onnx").exists()
