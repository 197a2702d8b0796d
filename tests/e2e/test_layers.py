"""Layers repeat: equal layers are traced once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from npuc.driver import CompileOptions, compile_model
from tests.support.models import CASES


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A function that writes the tiny decoder with so many layers and returns its path."""
    sys.path.insert(0, str(CASES))
    try:
        import tinyllm
        import tinyllm_onnx
    finally:
        sys.path.remove(str(CASES))

    def write(layers: int) -> Path:
        settings = {**tinyllm.BASE, "layers": layers}
        path = tmp_path_factory.mktemp(f"layers{layers}") / "model.onnx"
        path.write_bytes(tinyllm_onnx.build(settings, tinyllm.weights(settings)).SerializeToString())
        return path

    return write


def test_the_number_of_kernel_traces_does_not_grow_with_layers(tiny):
    options = CompileOptions(max_prompt_len=8, chunk=4, capacities=(12, 20))
    four, eight = (compile_model(tiny(layers), options) for layers in (4, 8))
    assert four is not None and eight is not None
    assert four.traces == eight.traces > 0
    tasks = [sum(len(program.tasks) for program in compiled.programs) for compiled in (four, eight)]
    assert tasks[1] > 1.7 * tasks[0]
