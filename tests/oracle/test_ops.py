"""Single operators and small graphs through the whole compiler, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.models import compile_to, run_graph

RNG = np.random.default_rng(3)


@dataclass(frozen=True)
class Case:
    """One node. inputs: arrays fed at run time; constants: arrays stored in the model, after the inputs."""

    op: str
    inputs: Sequence[np.ndarray]
    constants: Sequence[np.ndarray | None] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21

    def __str__(self) -> str:
        shapes = "x".join(str(list(a.shape)).replace(" ", "") for a in self.inputs)
        return f"{self.op}-{shapes}-{self.attributes}"


def floats(*shape: int) -> np.ndarray:
    return RNG.normal(0, 2, shape).astype(np.float32)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


A, B, C = floats(2, 3, 4), floats(2, 3, 4), floats(3, 1)
POSITIVE = np.abs(A) + 0.1
INTS = RNG.integers(-9, 9, (3, 5)).astype(np.int64)
FLAGS, OTHER = A > 0, B > 0

COLUMNS, TAPS = floats(1, 6, 9), floats(6, 1, 3)

CASES = [
    Case("Conv", [COLUMNS], [TAPS], {"group": 6}),
    Case("Conv", [COLUMNS], [TAPS, floats(6)], {"group": 6, "pads": [2, 0]}),
    Case("Conv", [COLUMNS], [TAPS, floats(6)], {"group": 6, "pads": [1, 1], "strides": [2]}),
    Case("Conv", [COLUMNS], [TAPS], {"group": 6, "pads": [0, 3], "dilations": [2]}),
    *(
        Case("Conv", [COLUMNS], [TAPS], {"group": 6, "auto_pad": mode})
        for mode in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    Case("Conv", [floats(1, 1, 5)], [floats(1, 1, 2)]),
    *(Case(op, [A, B]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    *(Case(op, [A, C]) for op in ("Add", "Sub", "Mul", "Div", "Greater", "LessOrEqual", "Equal")),
    *(
        Case(op, [A])
        for op in ("Neg", "Abs", "Exp", "Tanh", "Sigmoid", "Erf", "Sin", "Cos", "Floor", "Ceil", "Round", "Sign")
    ),
    *(Case(op, [A]) for op in ("Relu", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Gelu", "IsNaN")),
    *(Case(op, [POSITIVE]) for op in ("Log", "Sqrt", "Reciprocal")),
    Case("Gelu", [A], attributes={"approximate": "tanh"}),
    Case("Pow", [POSITIVE, B]),
    *(Case("Pow", [POSITIVE], [np.float32(power)]) for power in (2, 3, 0.5, -1.5)),
    Case("Mod", [INTS], [np.int64(4)]),
    Case("Mod", [A, B], attributes={"fmod": 1}),
    Case("Clip", [A], [np.float32(-1), np.float32(0.5)]),
    *(Case(op, [FLAGS, OTHER]) for op in ("And", "Or", "Xor")),
    Case("Not", [FLAGS]),
    Case("Where", [FLAGS, A, B]),
    Case("Where", [FLAGS, A], [np.float32(-1)]),
    Case("Cast", [A], attributes={"to": TensorProto.INT64}),
    Case("Cast", [INTS], attributes={"to": TensorProto.FLOAT}),
    Case("Cast", [INTS], attributes={"to": TensorProto.BOOL}),
    *(Case(op, [INTS], [np.array(3, np.int64)]) for op in ("Add", "Sub", "Mul", "Div")),
    *(Case("Softmax", [A], attributes={"axis": axis}) for axis in (-1, 0, 1)),
    *(
        Case(op, [A], [whole(*axes)], {"keepdims": keep})
        for op in (
            "ReduceSum",
            "ReduceMean",
            "ReduceMax",
            "ReduceMin",
            "ReduceProd",
            "ReduceL2",
            "ReduceL1",
            "ReduceSumSquare",
        )
        for axes, keep in (((-1,), 1), ((0, 2), 0), ((1,), 1))
    ),
    Case("ReduceSum", [A]),
    *(
        Case(op, [A], attributes={"axis": axis, "keepdims": keep})
        for op in ("ArgMax", "ArgMin")
        for axis, keep in ((0, 1), (2, 0))
    ),
    *(
        Case("CumSum", [A], [whole(axis)[0]], flags)
        for axis, flags in ((1, {}), (2, {"exclusive": 1}), (0, {"reverse": 1}))
    ),
    *(
        Case("Gather", [A], [index], {"axis": axis})
        for axis, index in ((0, whole(1, 0, 1)), (1, whole(-1, 0)), (2, whole(2)[0]))
    ),
    Case("Gather", [A, np.array([[2, 0], [-1, 1]], np.int64)], attributes={"axis": 1}),
    Case("Gather", [A, np.array([1, 1, 0], np.int64)]),
    *(Case("Concat", [A, B], attributes={"axis": axis}) for axis in (0, 1, 2)),
    Case("Split", [A], [whole(1, 3)], {"axis": 2}, outputs=2),
    Case("Split", [A], attributes={"axis": 1, "num_outputs": 3}, outputs=3),
    Case("Tile", [A], [whole(1, 2, 3)]),
    Case("Expand", [C], [whole(2, 3, 4)]),
    Case("Transpose", [A], attributes={"perm": [2, 0, 1]}),
    Case("Transpose", [floats(2, 3, 4, 5)], attributes={"perm": [3, 1, 0, 2]}),
    Case("Reshape", [A], [whole(4, -1)]),
    Case("Slice", [A], [whole(-1, 3), whole(-9, 0), whole(1, 2), whole(-1, -2)]),
    Case("Pad", [A], [whole(0, 1, 2, 1, 0, 1), np.float32(1.5)]),
    Case("Pad", [A], [whole(1, -1), np.float32(0), whole(1)]),
    Case("MatMul", [floats(5, 7), floats(7, 3)]),
    Case("MatMul", [floats(2, 5, 7), floats(2, 7, 3)]),
    Case("MatMul", [floats(2, 3, 5, 7), floats(3, 7, 4)]),
    Case("MatMul", [floats(7), floats(7, 3)]),
    Case("MatMul", [floats(5, 7), floats(7)]),
    Case("MatMul", [floats(2, 3, 7)], [floats(7, 20)]),
    Case("MatMul", [floats(2, 3, 7)], [floats(2, 7, 4)]),
    *(
        Case("Gemm", [floats(5, 7)], [floats(*shape), floats(6)], {"transB": t})
        for t, shape in ((0, (7, 6)), (1, (6, 7)))
    ),
    Case("Gemm", [floats(7, 5)], [floats(7, 6), floats(1)], {"transA": 1, "beta": 0.5}),
    Case("Gemm", [floats(5, 7)], [floats(7, 6)], {"alpha": 0.5}),
    Case("Gemm", [floats(5, 7), floats(7, 6), floats(5, 6)]),
    Case("LayerNormalization", [A], [floats(4), floats(4)], {"epsilon": 1e-3}),
    Case("LayerNormalization", [A], [floats(4)]),
    Case("Identity", [A]),
]


def model_of(case: Case) -> bytes:
    names = [f"x{i}" for i in range(len(case.inputs))]
    constants = {f"c{i}": array for i, array in enumerate(case.constants) if array is not None}
    operands = names + ["" if array is None else f"c{i}" for i, array in enumerate(case.constants)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, operands, outputs, name="node", **case.attributes)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, case.inputs, strict=True)
    ]
    results = [helper.make_value_info(name, helper.make_tensor_type_proto(0, None)) for name in outputs]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph([node], "case", infos, results, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)
    import onnx

    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    return inferred.SerializeToString()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator(case, tmp_path):
    data = model_of(case)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    feeds = {f"x{i}": array for i, array in enumerate(case.inputs)}
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    got = run_graph(compile_to(tmp_path / "m.npu", path, precision="f32"), feeds)
    for i, want in enumerate(wanted):
        assert got[f"y{i}"].shape == want.shape
        assert got[f"y{i}"].dtype == want.dtype
        np.testing.assert_allclose(got[f"y{i}"], want, rtol=2e-5, atol=2e-6)
