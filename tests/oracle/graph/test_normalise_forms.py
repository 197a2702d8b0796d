"""Each older or newer form of an operator against its form in operator set 21, both run by onnxruntime."""
# ruff: noqa: E501 (graphs and messages in one piece)

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from npuc.graph.functions import add_functions
from npuc.graph.normalise import RULES, normalise
from tests.support.graphs import graph

X = "float[2,3,4] x"
FORMS = [
    ("Softmax", 11, f"g ({X}) => (float[2,3,4] y) {{ y = Softmax (x) }}"),
    ("Softmax", 12, f"g ({X}) => (float[2,3,4] y) {{ y = Softmax <axis = 0> (x) }}"),
    ("Softmax", 12, f"g ({X}) => (float[2,3,4] y) {{ y = Softmax <axis = 2> (x) }}"),
    ("LogSoftmax", 12, "g (float[A,B,C] x) => (float[A,B,C] y) { y = LogSoftmax <axis = -2> (x) }"),
    ("Hardmax", 11, f"g ({X}) => (float[2,3,4] y) {{ y = Hardmax <axis = 1> (x) }}"),
    ("Squeeze", 11, "g (float[2,3,4] x) => (float[A,B] y) { z = ReduceMax <axes = [1]> (x) y = Squeeze <axes = [-2]> (z) }"),
    ("Squeeze", 11, "g (float[2,3,4] x) => (float[A,B] y) { z = ReduceMax <axes = [1]> (x) y = Squeeze (z) }"),
    ("Unsqueeze", 12, f"g ({X}) => (float[2,1,3,4,1] y) {{ y = Unsqueeze <axes = [1, 4]> (x) }}"),
    ("ReduceSum", 12, f"g ({X}) => (float[2,4] y) {{ y = ReduceSum <axes = [1], keepdims = 0> (x) }}"),
    ("ReduceSum", 11, f"g ({X}) => (float y) {{ y = ReduceSum <keepdims = 0> (x) }}"),
    *(
        (op, 17, f"g ({X}) => (float[2,1,4] y) {{ y = {op} <axes = [-2]> (x) }}")
        for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare")
    ),
    ("ReduceLogSumExp", 13, f"g ({X}) => (float[1,1,1] y) {{ y = ReduceLogSumExp (x) }}"),
    ("ReduceLogSum", 13, f"g ({X}) => (float[2,1,4] y) {{ p = Abs (x) y = ReduceLogSum <axes = [1]> (p) }}"),
    ("Split", 11, f"g ({X}) => (float[2,3,1] y, float[2,3,3] z) {{ y, z = Split <axis = 2, split = [1, 3]> (x) }}"),
    ("Split", 12, f"g ({X}) => (float[1,3,4] y, float[1,3,4] z) {{ y, z = Split (x) }}"),
    ("Split", 17, f"g ({X}) => (float[2,3,2] y, float[2,3,2] z) {{ y, z = Split <axis = -1> (x) }}"),
    ("Dropout", 11, f"g ({X}) => (float[2,3,4] y) {{ h = Dropout <ratio = 0.4> (x) y = Neg (h) }}"),
    ("Dropout", 13, f"g ({X}) => (float[2,3,4] y, bool[2,3,4] m) <float r = {{0.5}}> {{ y, m = Dropout (x, r) }}"),
    ("BatchNormalization", 13, "g (float[2,3,4] x) => (float[2,3,4] y) <float[3] s = {1,2,3}> { y = BatchNormalization (x, s, s, s, s) }"),
    ("CastLike", 18, "g (float[2,3,4] x, int64[1] k) => (int64[2,3,4] y) { y = CastLike (x, k) }"),
    ("OneHot", 13, "g (int64[1] k) => (float[1,5] y) <int32 d = {5}, float[2] v = {1.5, 2.5}> { y = OneHot (k, d, v) }"),
    ("RMSNormalization", 23, f"g ({X}) => (float[2,3,4] y) <float[4] w = {{1,2,3,4}}> {{ y = RMSNormalization <epsilon = 0.001> (x, w) }}"),
    ("SimplifiedLayerNormalization", 18, f"g ({X}) => (float[2,3,4] y) <float[4] w = {{1,2,3,4}}> {{ y = SimplifiedLayerNormalization <axis = 2> (x, w) }}"),
    ("DequantizeLinear", 23, "g (int8[2,3,4] x) => (float[2,3,4] y) <float s = {0.5}> { y = DequantizeLinear <output_dtype = 1> (x, s) }"),
    ("QuantizeLinear", 23, f"g ({X}) => (uint8[2,3,4] y) <float s = {{0.5}}> {{ y = QuantizeLinear <precision = 1> (x, s) }}"),
    ("Cast", 24, f'g ({X}) => (int64[2,3,4] y) {{ y = Cast <to = 7, round_mode = "up"> (x) }}'),
]  # fmt: skip
# onnxruntime does not run these; the formula is given.
FORMULAS = [("Swish", 24, "y = Swish <alpha = 1.5> (x)", 1.5), ("Swish", 24, "y = Swish (x)", 1.0)]
# Refused, or without an effect on the graph's values.
WITHOUT_ORACLE = {"Resize", "RoiAlign", "GridSample", "DFT", "GroupNormalization"}


def feeds(model: ir.Model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    sizes = {"k": (1,)}
    return {
        v.name: rng.normal(0, 2, sizes.get(v.name, (2, 3, 4))).astype(v.dtype.numpy())
        for v in model.graph.inputs
        if v.name is not None and v.dtype is not None
    }


def run(model: ir.Model, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


@pytest.mark.parametrize(("op", "opset", "body"), FORMS)
def test_same_values(op, opset, body):
    model = graph(body, opset)
    assert any(n.op_type == op for n in model.graph)
    inputs = feeds(model)
    result = normalise(model)
    assert result.opset_imports[""] == 21
    add_functions(result)
    for got, want in zip(run(result, inputs), run(model, inputs), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "opset", "node", "alpha"), FORMULAS)
def test_formula(op, opset, node, alpha):
    model = graph(f"g ({X}) => (float[2,3,4] y) {{ {node} }}", opset)
    x = feeds(model)["x"]
    (got,) = run(normalise(model), {"x": x})
    np.testing.assert_allclose(got, x / (1 + np.exp(-alpha * x.astype(np.float64))), rtol=1e-5, atol=1e-6)


def test_every_rule_has_a_test():
    tested = {op for op, *_ in FORMS} | {op for op, *_ in FORMULAS} | WITHOUT_ORACLE
    assert {op for rule in RULES for op in rule.ops} == tested
