"""Layers repeat: equal layers are traced, placed and ordered once."""

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


def test_equal_layers_are_scheduled_once(tiny):
    options = CompileOptions(max_prompt_len=8, chunk=4, capacities=(12, 20))
    four, eight, sixteen = (compile_model(tiny(layers), options) for layers in (4, 8, 16))
    assert four is not None and eight is not None and sixteen is not None
    for shallow, middle, deep in zip(four.programs, eight.programs, sixteen.programs, strict=True):
        assert shallow.effort.scheduled == middle.effort.scheduled == deep.effort.scheduled
        assert shallow.effort.scheduled == len(shallow.tasks)
        assert middle.effort.scheduled + middle.effort.stamped == len(middle.tasks)
        assert deep.effort.scheduled + deep.effort.stamped == len(deep.tasks)
        if shallow.entry != "head":
            assert (middle.effort.periods, deep.effort.periods) == (7, 15)
            assert middle.peaks == deep.peaks
