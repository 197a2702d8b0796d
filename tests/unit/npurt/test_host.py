"""Programs of entries and host steps: what a loader refuses, and what a device takes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npurt
from npuc.driver import Compiled, CompileOptions, compile_model
from npuc.emit import write_blob
from npurt.errors import BlobError, DeviceError
from tests.support.graphs import written

BODY = """g (float[1,2,4] x, int32[3] a) => (float[1,3,5] y, int32[3] c)
    <float[2,3,2] w = {1,2,3,4,5,6,7,8,9,10,11,12}> {
  n = Neg (x)
  h = ConvTranspose (n, w)
  y = Abs (h)
  c = BitwiseNot (a)
}"""
Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    model = written(tmp_path_factory.mktemp("host"), BODY, opset=18)
    found = compile_model(model, CompileOptions(precision="f32", host_ops=("all",)))
    assert found is not None
    return found


def blob_of(compiled: Compiled, path: Path, edit: Edit = lambda host: None, assets: bool = True) -> Path:
    """The blob with another `host` object."""
    metadata = copy.deepcopy(compiled.metadata)
    edit(metadata["host"])
    write_blob(compiled.programs, compiled.states, metadata, compiled.assets if assets else {}, path)
    return path


def test_runs_entries_and_host_steps_in_turn(compiled: Compiled, tmp_path: Path) -> None:
    image = npurt.load(blob_of(compiled, tmp_path / "m.npu"))
    assert list(image.entries) == ["main.part0", "main.part1"]
    x, a = np.float32([[[1, -2, 3, 4], [5, 6, -7, 8]]]), np.int32([0, -1, 77])
    weight = np.arange(1, 13, dtype=np.float64).reshape(2, 3, 2)
    wanted = np.zeros((1, 3, 5))
    for place in range(4):
        wanted[0, :, place : place + 2] += np.einsum("c,cmk->mk", -x[0, :, place].astype(np.float64), weight)
    for mode in ("exact", "fast"):
        found = npurt.open_device(image, mode).run("main", {"x": x, "a": a})
        np.testing.assert_array_equal(found["y"], abs(wanted).astype(np.float32))
        np.testing.assert_array_equal(found["c"], ~a)
    part = npurt.Device(image).run("main.part0", {"x": x})
    np.testing.assert_array_equal(part["n"], -x)


def test_the_same_blob_each_time(compiled: Compiled, tmp_path: Path) -> None:
    first, second = (blob_of(compiled, tmp_path / name).read_bytes() for name in ("a.npu", "b.npu"))
    assert first == second


STEPS = "steps"
DAMAGE: dict[str, tuple[Edit, str]] = {
    "op": (lambda h: h[STEPS][1].update(op="Evil"), "metadata host step 1 (Evil): the host has no operator 'Evil'"),
    "name": (lambda h: h.update(name="main.part0"), "metadata host: 'main.part0' is an entry, too"),
    "entry": (lambda h: h[STEPS][0].update(entry="x"), "metadata host step 0: 'x' is no entry, or has been run"),
    "twice": (lambda h: h[STEPS].append(h[STEPS][0]), "host step 4: 'main.part0' is no entry, or has been run"),
    "order": (lambda h: h[STEPS].reverse(), "metadata host step 0: entry main.part1 reads 'h', which no step has made"),
    "reads": (lambda h: h[STEPS][1]["inputs"][0].update(value="q"), "reads 'q', which no step before has made"),
    "attribute": (lambda h: h[STEPS][1]["attributes"].update(evil=1), "there is no attribute 'evil'; it has auto_pad"),
    "kind": (lambda h: h[STEPS][1]["attributes"].update(strides=[1.5]), "attribute 'strides' is not of kind ints"),
    "choice": (lambda h: h[STEPS][1]["attributes"].update(auto_pad="X"), "attribute 'auto_pad' is none of NOTSET,"),
    "zero": (lambda h: h[STEPS][1]["attributes"].update(strides=[0]), "strides, dilations or pads are not those of 1"),
    "stride": (lambda h: h[STEPS][1]["attributes"].update(strides=[2]), "the output is not f32[1, 3, 8]"),
    "memory": (
        lambda h: h[STEPS][1]["attributes"].update(strides=[2**30], pads=[0, 3 * 2**30 - 3]),
        "attribute 'pads' is not of kind ints",
    ),
    "huge": (
        lambda h: h[STEPS][1]["attributes"].update(strides=[2**30]), "the result before its pads are cut off of shape"),
    "type": (lambda h: h[STEPS][1]["inputs"][1].update(graph_dtype="f16"), "inputs of types f32, f16; the host"),
    "outside": (lambda h: h[STEPS][1]["inputs"][1].update(constant=4), "a constant at byte 4 is outside the 48 that"),
    "negative": (lambda h: h[STEPS][1]["inputs"][1].update(constant=-4), "a constant has no offset, or is of type f32"),
    "count": (lambda h: h[STEPS][1]["inputs"].pop(), "1 inputs, 2 to 3 are due"),
    "made": (lambda h: h[STEPS][1]["output"].update(name="n"), "'n' is made twice"),
    "output": (lambda h: h["outputs"][0].update(shape=[1]), "no step makes the output 'y' in its shape and type"),
    "input": (lambda h: h["inputs"][0].update(shape=[4]), "entry main.part0 reads 'x', which no step has"),
    "rank": (lambda h: h["inputs"][0].update(shape=[1] * 9), "the shape is no list of at most 8 sizes"),
    "list": (lambda h: h.update(steps=3), "metadata host: 'steps' is no list"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_programs_are_refused(name: str, compiled: Compiled, tmp_path: Path) -> None:
    edit, message = DAMAGE[name]
    path = blob_of(compiled, tmp_path / "m.npu", edit)
    with pytest.raises(BlobError) as refused:
        npurt.load(path)
    assert message in str(refused.value)


def test_a_blob_without_the_constants_is_refused(compiled: Compiled, tmp_path: Path) -> None:
    with pytest.raises(BlobError, match="a constant at byte 0 is outside the 0 that there are"):
        npurt.load(blob_of(compiled, tmp_path / "m.npu", assets=False))


@pytest.mark.parametrize(
    ("given", "step", "message"),
    [
        ({"a": np.zeros(3, np.int32)}, {}, "program main: input 'x' is missing; its inputs are x, a"),
        ({"q": 1}, {}, "program main: there is no input 'q'; its inputs are x, a"),
        ({"x": np.zeros(3)}, {}, "program main, input 'x': float64[3] was given, f32[1, 2, 4] is due"),
        ({"a": np.full(3, 2**40)}, {}, "program main, input 'a': i32 does not hold its values"),
        ({}, {"n_past": 1}, "program main has steps of the host and no states: it takes no n_past and no n_new"),
    ],
)
def test_requests_that_are_refused(
    given: dict[str, Any], step: dict[str, int], message: str, compiled: Compiled, tmp_path: Path
) -> None:
    device = npurt.Device(npurt.load(blob_of(compiled, tmp_path / "m.npu")))
    whole = {"x": np.zeros((1, 2, 4), np.float32), "a": np.zeros(3, np.int32)}
    inputs = given if list(given) == ["a"] and given["a"].dtype == np.int32 else {**whole, **given}
    with pytest.raises(DeviceError) as refused:
        device.run("main", inputs, **step)
    assert str(refused.value) == message
