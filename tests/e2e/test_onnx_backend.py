"""npuc.onnx_backend, and the node tests of the onnx package that pass through it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from npuc import onnx_backend
from npuc.frontend import ModelRefused
from npurt import DeviceError
from tests.support.graphs import parsed
from tools.onnx_node_tests import Verdict, cases, read_floor, run_case

SHARD = 25  # every so many tests run by default, all of them in a sweep


def faults(chosen: list[Any]) -> list[str]:
    """Tests that give a wrong number, and those of the floor that no longer pass."""
    floor = read_floor()
    names = frozenset(floor.names) if floor.is_of_this_onnx else frozenset()
    found = []
    for case in chosen:
        outcome = run_case(case)
        if outcome.verdict is Verdict.WRONG or (outcome.verdict is Verdict.REFUSED and case.name in names):
            found.append(f"{outcome.name}: {outcome.verdict.value}: {outcome.reason}")
    return found


def test_a_shard_of_the_node_tests() -> None:
    assert faults(cases()[::SHARD]) == []


@pytest.mark.slow
def test_all_node_tests() -> None:
    assert faults(cases()) == []


def test_the_module_is_a_backend() -> None:
    model = parsed("g (float[2,3] x, float[3] y) => (float[2,3] z) { z = Add (x, y) }")
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([1, 2, 3])
    assert onnx_backend.supports_device("CPU") and onnx_backend.supports_device("NPU:0")
    assert not onnx_backend.supports_device("CUDA")
    (result,) = onnx_backend.run_model(model, [x, y])
    np.testing.assert_array_equal(result, x + y)
    (result,) = onnx_backend.prepare(model).run({"y": y, "x": x})
    np.testing.assert_array_equal(result, x + y)


def test_inputs_that_decide_shapes_are_taken_as_constants() -> None:
    model = parsed("g (float[2,6] x, int64[2] shape) => (float[a,b] y) { y = Reshape (x, shape) }")
    prepared = onnx_backend.prepare(model)
    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    assert prepared.deciding == ("shape",)
    for shape in ((3, 4), (4, 3)):
        (result,) = prepared.run([x, np.array(shape, np.int64)])
        np.testing.assert_array_equal(result, x.reshape(shape))


def test_what_cannot_run_is_refused() -> None:
    model = parsed("g (float[4] x) => (int64[1,n] y) { [pick] y = NonZero (x) }")
    with pytest.raises(ModelRefused, match=r"node 'pick' \(NonZero\): output 'y' has an extent that follows from no"):
        onnx_backend.prepare(model)


def test_integers_that_the_device_cannot_hold_are_refused() -> None:
    model = parsed("g (int64[2] x) => (int64[2] y) { y = Neg (x) }")
    with pytest.raises(DeviceError) as error:
        onnx_backend.run_model(model, [np.array([1, 2**31], np.int64)])
    assert str(error.value) == (
        "entry main, input 'x': its values go from 1 to 2147483648, and the device holds i64 in i32, from -2147483648 "
        "to 2147483647"
    )


def test_outputs_have_the_element_types_of_the_graph() -> None:
    body = "g (float[3] x) => (bfloat16[3] y, uint16[3] z) {{ y = Cast <to = {}> (x) z = Cast <to = {}> (x) }}"
    model = parsed(body.format(onnx.TensorProto.BFLOAT16, onnx.TensorProto.UINT16))
    y, z = onnx_backend.run_model(model, [np.float32([1.0, 2.7, 65537.0])])
    assert y.dtype.name == "bfloat16" and z.dtype == np.uint16
    assert y.astype(np.float32).tolist() == [1.0, 2.703125, 65536.0]
    assert z.tolist() == [1, 2, 1]
