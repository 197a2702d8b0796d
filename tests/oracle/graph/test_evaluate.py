"""The NumPy evaluator against onnxruntime, operator by operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from npuc.graph.evaluate import OPERATORS, EvaluationError, OutOfTable, evaluate
from tests.oracle.graph.stages import session

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(0, 2, (2, 3, 4)).astype(np.float32)
Y = RANDOM.uniform(0.5, 3, (3, 4)).astype(np.float32)
WHOLE = RANDOM.integers(-9, 9, (2, 3, 4))
B = X > 0
ENDS = np.iinfo(np.int64)


def k(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


CASES: list[tuple[str, list[np.ndarray | None], dict[str, Any]]] = [
    *[
        (op, [X], {})
        for op in (
            "Abs",
            "Neg",
            "Sign",
            "Floor",
            "Ceil",
            "Round",
            "Relu",
            "Exp",
            "Sin",
            "Cos",
            "Tanh",
            "Sigmoid",
            "Erf",
            "Softplus",
            "Identity",
            "Shape",
            "Size",
            "NonZero",
            "Softmax",
        )
    ],
    *[(op, [np.abs(X) + 0.1], {}) for op in ("Sqrt", "Reciprocal", "Log")],
    *[(op, [X, Y], {}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Greater", "GreaterOrEqual")],
    *[
        (op, [WHOLE, np.array([[3, -2, 5, 7]])], {})
        for op in ("Div", "Mod", "Add", "Equal", "LessOrEqual", "BitwiseAnd", "BitwiseOr")
    ],
    *[(op, [B, Y > 1], {}) for op in ("And", "Or", "Xor", "Equal")],
    *[
        (op, [X, k(-1)], {"keepdims": keep})
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2", "ReduceSumSquare")
        for keep in (0, 1)
    ],
    *[("Pow", [np.abs(X), np.array(e, np.float32)], {}) for e in (2.0, 0.5, -0.5, 3.0, 1.7)],
    ("Mod", [X, Y], {"fmod": 1}),
    ("Not", [B], {}),
    ("IsNaN", [np.array([1, np.nan, np.inf], np.float32)], {}),
    ("IsInf", [np.array([1, np.nan, np.inf], np.float32)], {}),
    ("Where", [B, X, Y], {}),
    ("Clip", [X, np.float32(-1), np.float32(1)], {}),
    ("Clip", [X, None, np.float32(1)], {}),
    ("Gelu", [X], {}),
    ("Gelu", [X], {"approximate": "tanh"}),
    ("Cast", [X], {"to": onnx.TensorProto.FLOAT16}),
    ("Cast", [X], {"to": onnx.TensorProto.INT64}),
    ("Cast", [X * 1000], {"to": onnx.TensorProto.BFLOAT16}),
    ("Cast", [WHOLE], {"to": onnx.TensorProto.BOOL}),
    ("CastLike", [WHOLE, X], {}),
    ("Sum", [X, Y, X], {}),
    ("Add", [X.astype(np.float16), Y.astype(np.float16)], {}),
    ("MatMul", [X, Y.T.copy()], {}),
    ("MatMul", [WHOLE, np.arange(8).reshape(4, 2)], {}),
    ("Gemm", [Y, Y, np.float32([1, 2, 3])], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("ReduceSum", [X], {"keepdims": 0}),
    ("ReduceSum", [X], {"noop_with_empty_axes": 1}),
    ("ReduceMax", [WHOLE, k(0, 2)], {}),
    ("ArgMax", [X], {"axis": 1, "keepdims": 0}),
    ("ArgMax", [np.zeros((2, 3), np.float32)], {"axis": 1, "select_last_index": 1}),
    ("ArgMin", [X], {"axis": -1}),
    ("CumSum", [X, np.array(1)], {}),
    ("CumSum", [X, np.array(1)], {"exclusive": 1, "reverse": 1}),
    ("Softmax", [X], {"axis": 1}),
    ("LayerNormalization", [X, np.float32([1, 2, 3, 4]), np.float32([0, 1, 0, 1])], {"epsilon": 1e-3}),
    ("TopK", [np.float32([[3, 1, 3, 2]]), k(3)], {}),
    ("TopK", [X, k(2)], {"axis": 1, "largest": 0}),
    ("Reshape", [X, k(0, -1, 2)], {}),
    ("Reshape", [np.zeros((0, 3), np.float32), k(3, 0)], {"allowzero": 1}),
    ("Flatten", [X], {"axis": 2}),
    ("Flatten", [X], {"axis": -3}),
    ("Squeeze", [X[:, :1], k(1)], {}),
    ("Squeeze", [X[:1, :1]], {}),
    ("Unsqueeze", [X, k(0, -1)], {}),
    ("Transpose", [X], {}),
    ("Transpose", [X], {"perm": [1, 2, 0]}),
    ("Concat", [X, X[:, :1]], {"axis": -2}),
    ("Split", [X, k(1, 3)], {"axis": 2}),
    ("Split", [X], {"axis": 1, "num_outputs": 2}),
    ("Slice", [X, k(1), k(ENDS.max), k(-1)], {}),
    ("Slice", [X, k(-1, 0), k(ENDS.min, 2), k(1, 2), k(-1, 1)], {}),
    ("Slice", [X, k(5), k(9), k(1)], {}),
    ("Gather", [X, np.array([[0, -1], [2, 1]])], {"axis": 1}),
    ("Gather", [X, np.array(1)], {"axis": -1}),
    ("GatherElements", [X, RANDOM.integers(0, 3, (2, 2, 4))], {"axis": 1}),
    ("GatherND", [X, np.array([[0, 2], [1, -1]])], {}),
    ("GatherND", [X, np.array([[1], [2]])], {"batch_dims": 1}),
    ("ScatterND", [X, np.array([[0], [1]]), X[::-1].copy()], {}),
    ("ScatterND", [X, np.array([[0, 1], [0, 1]]), X[:, 0]], {"reduction": "add"}),
    ("ScatterElements", [X, np.array([[[2, 1, 0, 1]]]), X[:1, :1]], {"axis": 1}),
    ("Expand", [X[:, :1], k(2, 3, 1)], {}),
    ("Tile", [X, k(1, 2, 1)], {}),
    ("Pad", [X, k(0, 1, 0, 0, 0, 2), np.float32(7)], {}),
    ("Pad", [X, k(1, 1), None, k(2)], {"mode": "edge"}),
    ("Pad", [X, k(1, 1), None, k(2)], {"mode": "reflect"}),
    ("Trilu", [X, np.array(1)], {}),
    ("Trilu", [X], {"upper": 0}),
    ("Range", [np.array(2), np.array(11), np.array(3)], {}),
    ("Range", [np.float32(3), np.float32(-1), np.float32(-1.5)], {}),
    ("ConstantOfShape", [k(2, 0, 3)], {}),
    ("ConstantOfShape", [k(2, 2)], {"value": helper.make_tensor("v", onnx.TensorProto.INT64, [1], [-1])}),
    ("Constant", [], {"value_ints": [3, 4]}),
    ("Constant", [], {"value_float": 0.5}),
    ("Shape", [X], {"start": 1, "end": -1}),
    ("OneHot", [np.array([0, 2, -1]), np.array(3), np.float32([0, 5])], {"axis": 0}),
    ("DequantizeLinear", [RANDOM.integers(0, 255, (3, 4)).astype(np.uint8), np.float32(0.1), np.uint8(7)], {}),
    ("DequantizeLinear", [np.arange(8, dtype=np.int8).reshape(2, 4), np.float32([[1, 2], [3, 4]])], {"block_size": 2}),
    ("QuantizeLinear", [X[0], np.float32([0.1, 0.5, 0.02]), np.int8([0, 3, -3])], {"axis": 0}),
    ("QuantizeLinear", [X, np.float32(0.01)], {}),
]


def reference(op: str, inputs: list[np.ndarray | None], attrs: dict[str, Any], outputs: int) -> list[np.ndarray]:
    """What onnxruntime computes for one node of operator set 21."""
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{i}" for i in range(outputs)], **attrs)
    given = [(name, np.asarray(value)) for name, value in zip(names, inputs, strict=True) if value is not None]
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given]
    results = [onnx.ValueInfoProto(name=f"o{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "g", ports, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return session(model.SerializeToString()).run(None, dict(given))


@pytest.mark.parametrize(("op", "inputs", "attrs"), CASES, ids=[f"{i}-{op}" for i, (op, _, _) in enumerate(CASES)])
def test_operator_agrees_with_onnxruntime(op: str, inputs: list[np.ndarray | None], attrs: dict[str, Any]) -> None:
    own = {key: onnx.numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for key, v in attrs.items()}
    arrays = [None if value is None else np.asarray(value) for value in inputs]
    found = evaluate("", op, arrays, own)
    if attrs.get("to") == onnx.TensorProto.BFLOAT16:  # onnxruntime hands out no bf16 arrays
        assert np.array_equal(found[0].astype(np.float32), np.float32((X * 1000).astype(found[0].dtype)))
        return
    expected = reference(op, inputs, attrs, len(found))
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine.astype(np.float64), theirs.astype(np.float64), rtol=2e-6, atol=2e-6)


def test_every_operator_of_the_table_is_compared() -> None:
    assert sorted({op for op, _, _ in CASES}) == sorted(OPERATORS)


def test_reading_past_a_table_tells_its_rows() -> None:
    with pytest.raises(OutOfTable, match="Gather reads row 5 of a table of 3") as error:
        evaluate("", "Gather", [Y, k(0, 5)], {})
    assert error.value.rows == 3


def test_operands_that_do_not_fit_name_their_shapes() -> None:
    with pytest.raises(EvaluationError, match=r"Add of shapes \[2, 3\], \[4\]: "):
        evaluate("", "Add", [np.zeros((2, 3)), np.zeros(4)], {})


def test_unknown_operator_is_named() -> None:
    with pytest.raises(EvaluationError, match=r"^no evaluator for com\.microsoft::MoE$"):
        evaluate("com.microsoft", "MoE", [], {})
