"""What check_model says, word for word, and that it says all of it at once."""
# ruff: noqa: E501 (graphs and messages in one piece)

from __future__ import annotations

import pytest

from npuc.frontend import LoadedModel, ModelRefused, check_model
from tests.support.graphs import graph


def problems(body: str, opset: int = 17, extra: str = "") -> list[str]:
    try:
        check_model(LoadedModel(graph(body, opset, extra)))
    except ModelRefused as error:
        return list(error.problems)
    return []


ONE_FAULT = [
    (
        "g (float[2,3] x) => (float[2,4] y) <int32[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}> { [a] y = MatMul (x, w) }",
        "node a (MatMul): input 'x' is float and weight 'w' is int32; they must have one type",
    ),
    (
        "g (float[2,3] x, float[4,4] w) => (float[2,4] y) { [a] y = MatMul (x, w) }",
        "node a (MatMul): 'x' [2, 3], 'w' [4, 4] do not fit: Incompatible dimensions for matrix multiplication",
    ),
    (
        "g (float[2] x) => (float[2] y) { [a] y = Relu (z) }",
        "node a (Relu): reads 'z', a value that nothing makes",
    ),
    (
        "g (float[2] x) => (float[2] y) { [a] t = Add (x, y) [b] y = Relu (t) }",
        "a cycle: node b (Relu) -> node a (Add) -> node b (Relu)",
    ),
    (
        "g (float[2] x) => (float[2] y) { [a] y = Frobnicate (x) }",
        "node a (Frobnicate): domain ai.onnx has no operator Frobnicate in operator set 17",
    ),
    (
        "g (float[2] x) => (float[2] y) { [a] y = Relu <alpha = 1.0> (x) }",
        "node a (Relu): attribute 'alpha' does not exist for it in this operator set",
    ),
    (
        "g (float[2] x) => (float[2] y) { [a] y = Concat <axis = 1.0> (x) }",
        "node a (Concat): attribute 'axis' is float, not int",
    ),
    (
        "g (float[2] x) => (float[2] y) { [a] y = Concat (x) }",
        "node a (Concat): misses its attribute 'axis'",
    ),
    (
        "g (float[2] x) => (float[2] y) { [a] y = Add (x) }",
        "node a (Add): has 1 input, the operator takes 2",
    ),
    (
        "g (float[2] x) => (float[3] y) { [a] y = Relu (x) }",
        "node a (Relu): output 'y' is declared [3], the node makes [2]",
    ),
    (
        "g (bool[2] x) => (bool[2] y) { [a] y = Sin (x) }",
        "node a (Sin): input 'x' is bool; the operator takes float, float16, double there",
    ),
    (
        "g (float[2] x) => (float[2] y) <int64[2] s = {9000000, 9000000}> "
        "{ [a] t = ConstantOfShape (s) [b] r = ReduceMax <keepdims = 0> (t) [c] y = Add (x, r) }",
        "node a (ConstantOfShape): makes 't' of shape [9000000, 9000000], larger than any value can be",
    ),
    (
        "g (float[2] x, bool c) => (float[2] y) "
        "{ [a] y = If (c) <then_branch = t () => (float[2] p) { [b] p = Relu (x) }, "
        "else_branch = e () => (float[2] q) { [d] q = Relu (lost) }> }",
        "node d (Relu): reads 'lost', a value that nothing makes",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), ONE_FAULT)
def test_one_fault(body, message):
    assert problems(body) == [message]


def test_foreign_domains():
    body = "g (float[2] x) => (float[2] y) { [a] y = org.example.Twist (x) }"
    assert problems(body, extra='"org.example" : 1') == [
        "node a (org.example.Twist): operator Twist is of domain org.example, which npuc does not know; it "
        "needs a body, as a function of the model, which --kernel org.example::Twist=FILE.py:NAME may then replace"
    ]
    assert problems(body) == [
        "node a (org.example.Twist): its domain org.example is not among the operator sets that the model imports"
    ]


@pytest.mark.parametrize(("opset", "use"), [(10, 11), (29, 28)])
def test_operator_sets_outside_the_table(opset, use):
    body = "g (float[2] x) => (float[2] y) { y = Clip (x) }"
    assert problems(body, opset) == [
        f"operator set {opset} of ai.onnx; npuc reads 11 to 28: export again with opset_version={use}"
    ]


def test_an_older_set_is_read_where_its_operators_have_not_changed():
    assert problems("g (bool[2] x) => (bool[2] y) { y = Not (x) }", 1) == []


def test_all_faults_at_once_and_shared_ones_once():
    body = """g (float[2,3] x, float[4,4] w) => (float[2,4] y) {
        [a] p = Frobnicate (x) [b] q = Frobnicate (p) [c] r = Frobnicate (q) [d] s = Frobnicate (r) [e] u = Frobnicate (s)
        [f] v = Relu (lost)
        [g] y = MatMul (x, w)
    }"""
    places = "node a (Frobnicate), node b (Frobnicate), node c (Frobnicate) and 2 more"
    assert problems(body) == [
        f"{places}: domain ai.onnx has no operator Frobnicate in operator set 17",
        "node f (Relu): reads 'lost', a value that nothing makes",
        "node g (MatMul): 'x' [2, 3], 'w' [4, 4] do not fit: Incompatible dimensions for matrix multiplication",
    ]


def test_what_the_standard_checker_refuses_and_exporters_write():
    """SimplifiedLayerNormalization in the default domain; nodes in an order that does not run; captured values."""
    body = """g (float[2,4] x, float[4] w, bool c) => (float[2,4] z) {
        [b] y = Neg (n)
        [a] n = SimplifiedLayerNormalization <axis = -1, epsilon = 0.00001> (x, w)
        [c] z = If (c) <then_branch = t () => (float[2,4] p) { p = Relu (y) }, else_branch = e () => (float[2,4] q) { q = Neg (y) }>
    }"""
    assert problems(body) == []


def test_text_of_several_problems():
    error = ModelRefused([f"fault {i}" for i in range(23)], "m.onnx")
    lines = str(error).splitlines()
    assert lines[0] == "m.onnx: 23 problems" and lines[1] == "  fault 0"
    assert lines[-1] == "  and 3 more" and len(lines) == 22
    assert str(ModelRefused(["one fault"], "m.onnx")) == "m.onnx: one fault"
    assert ModelRefused.exit_code == 3
