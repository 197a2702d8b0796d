"""What a normalised graph looks like, and the forms that operator set 21 cannot say."""
# ruff: noqa: E501 (graphs and messages in one piece)

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest

from npuc.frontend import ModelRefused
from npuc.graph.normalise import normalise, stamp
from tests.support.graphs import graph


def ops(model: ir.Model) -> list[str]:
    return [n.op_type for n in model.graph]


def test_constants_become_initializers():
    body = """g (float[2] x) => (float[2] y, int64 n) {
        a = Constant <value = float[2] {1, 2}> () b = Constant <value_float = 2.0> () c = Constant <value_ints = [0]> ()
        n = Constant <value_int = 3> () s = Add (x, a) t = Mul (s, b) u = Unsqueeze (t, c) y = Squeeze (u, c)
    }"""
    model = normalise(graph(body))
    assert ops(model) == ["Identity", "Add", "Mul", "Unsqueeze", "Squeeze"]
    assert {name: v.const_value.numpy().tolist() for name, v in model.graph.initializers.items()} == {
        "a": [1.0, 2.0], "b": 2.0, "c": [0], "n.constant": 3,
    }  # fmt: skip
    assert [v.name for v in model.graph.outputs] == ["y", "n"]


def test_nodes_that_only_pass_on_go():
    body = """g (float[2] x) => (float[2] y, float[2] z, float[2] same) {
        a = Identity (x) b = Cast <to = 1> (a) c = Concat <axis = 0> (b) d = Neg (c) y = Identity (d) e = Cast <to = 10> (d)
        z = Cast <to = 1> (e) same = Identity (x)
    }"""
    model = normalise(graph(body))
    assert ops(model) == ["Neg", "Cast", "Cast", "Identity"]
    assert [v.name for v in model.graph.outputs] == ["y", "z", "same"]
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_names_are_unique_and_kept():
    body = """g (float[2] x) => (float[2] y) { [layer] a = Neg (x) b = Neg (a) [layer] c = Neg (b) y = Neg (c) }"""
    assert [n.name for n in normalise(graph(body)).graph] == ["layer", "b", "layer_1", "y"]


def test_the_given_model_stays():
    model = graph("g (float[2,3] x) => (float[2] y) { y = ReduceMean <axes = [1], keepdims = 0> (x) }")
    before = ir.to_proto(model)
    normalise(model)
    assert ir.to_proto(model) == before


def test_normalise_is_idempotent_and_deterministic():
    body = "g (float[2,3,4] x) => (float[2,3,4] y) { h = Softmax (x) d = Dropout (h) y = Neg (d) }"
    first, again = (ir.to_proto(normalise(graph(body, 11))).SerializeToString(deterministic=True) for _ in range(2))
    assert first == again
    assert ir.to_proto(normalise(ir.from_proto(onnx.load_from_string(first)))) == onnx.load_from_string(first)


def test_operators_that_set_21_does_not_have_keep_their_set():
    body = "g (float[1,2,3,4] q) => (float[1,2,3,4] z) { y = Attention (q, q, q) z = Swish (y) }"
    model = normalise(graph(body, 24))
    assert ops(model) == ["Attention", "Sigmoid", "Mul"] and model.opset_imports[""] == 24
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    model.graph.outputs[0] = model.graph.inputs[0]
    model.graph.remove(list(model.graph))
    stamp(model)
    assert model.opset_imports[""] == 21


def test_inside_branches():
    body = """g (float[2,3] x, bool c) => (float[2] y) {
        y = If (c) <then_branch = t () => (float[2] p) { p = ReduceMean <axes = [1], keepdims = 0> (x) },
                    else_branch = e () => (float[2] q) { k = Constant <value_ints = [1]> () q = ReduceSum <keepdims = 0> (x, k) }>
    }"""
    proto = ir.to_proto(normalise(graph(body)))
    onnx.checker.check_model(proto, full_check=True)
    assert proto.opset_import[0].version == 21


REFUSED = [
    (17, "g (float[2] x) => (float[2] y) <bool t = {1}, float r = {0.5}> { [a] y = Dropout (x, r, t) }",
     "node a (Dropout): Dropout in training mode; export the model for inference"),
    (12, "g (float[2,3] x, float[3] s) => (float[2,3] y, float[3] m) { [a] y, m, v, p, q = BatchNormalization (x, s, s, s, s) }",
     "node a (BatchNormalization): BatchNormalization in training mode; export the model for inference"),
    (23, "g (float[2,3] x, float[2,3] s) => (float[2,3] y) { [a] y = RMSNormalization <axis = 0> (x, s) }",
     "node a (RMSNormalization): a norm over the axes from 0 on; only the last axis alone is supported"),
    (18, "g (float[2,4,3] x, float[2] s) => (float[2,4,3] y) { [a] y = GroupNormalization <num_groups = 2> (x, s, s) }",
     "node a (GroupNormalization): in operator set 18 it means something else than in set 21; export with opset_version=21"),
    (23, "g (int8[2] x, float s) => (float16[2] y) { [a] y = DequantizeLinear <output_dtype = 10> (x, s) }",
     "node a (DequantizeLinear): output_dtype or element types that differ from the scale's, which operator set 21 does not have"),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "body", "message"), REFUSED)
def test_forms_that_set_21_cannot_say(opset, body, message):
    with pytest.raises(ModelRefused) as error:
        normalise(graph(body, opset))
    assert error.value.problems == (message,)
