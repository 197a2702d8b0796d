"""Cleaning and folding: what goes, what stays, and what a graph that does not fold says."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from npuc.frontend import ModelRefused
from npuc.graph.clean import clean
from npuc.graph.fold import fold
from npuc.graph.infer import Inference
from npuc.graph.nodes import constant
from tests.support.graphs import graph


def folded(body: str, *shapes: tuple[int, ...]) -> ir.Graph:
    model = graph(body, opset=21)
    for index, node in enumerate(model.graph):
        node.name = f"n{index}"
    fold(model.graph, dict(zip(model.graph.inputs, shapes, strict=True)), Inference())
    return model.graph


def cleaned(body: str, *shapes: tuple[int, ...]) -> list[str]:
    found = folded(body, *shapes)
    clean(found)
    return [node.op_type for node in found]


def test_shape_arithmetic_folds_to_one_constant() -> None:
    found = folded(
        """g (float[B,S,6] x) => (float[B,S,2,3] y) <int64[2] tail = {2, 3}> {
        s = Shape <start = 0, end = 2> (x)  t = Concat <axis = 0> (s, tail)  y = Reshape (x, t) }""",
        (1, 5, 6),
    )
    (node,) = found
    assert constant(node.inputs[1]).tolist() == [1, 5, 2, 3]  # type: ignore[union-attr]
    assert node.outputs[0].shape == ir.Shape([1, 5, 2, 3])


def test_folded_output_of_the_graph_becomes_an_initializer() -> None:
    found = folded("g (float[B] x) => (int64[1] y, float[B] z) { y = Shape (x)  z = Neg (x) }", (4,))
    assert [node.op_type for node in found] == ["Neg"]
    assert constant(found.outputs[0]).tolist() == [4]  # type: ignore[union-attr]


def test_large_constants_fold_lazily_to_the_same_numbers() -> None:
    model = graph(
        "g (float[1,300] x) => (float[1,300] y) { t = Transpose <perm = [1, 0]> (w)  y = MatMul (x, t) }", opset=21
    )
    weight = np.random.default_rng(0).normal(size=(300, 300)).astype(np.float32)
    held = ir.Value(
        name="w", shape=ir.Shape([300, 300]), type=ir.TensorType(ir.DataType.FLOAT), const_value=ir.Tensor(weight)
    )
    model.graph.register_initializer(held)
    model.graph[0].replace_input_with(0, held)
    fold(model.graph, {model.graph.inputs[0]: (1, 300)}, Inference())
    product = model.graph[0]
    assert product.op_type == "MatMul" and product.inputs[1] is not None
    assert isinstance(product.inputs[1].const_value, ir.LazyTensor)
    assert np.array_equal(constant(product.inputs[1]), weight.T)  # type: ignore[arg-type]


def test_size_that_depends_on_data_is_refused_by_name() -> None:
    with pytest.raises(ModelRefused) as refused:
        folded("g (float[N] x) => (int64[1,K] y) { y = NonZero (x) }", (4,))
    assert str(refused.value) == (
        "node 'n0' (NonZero): output 'y' has an extent that follows from no size of the model; "
        "operators whose result size depends on data are not supported"
    )


def test_operator_without_a_rule_is_refused_by_name() -> None:
    model = graph("g (float[2] x) => (float[2] y) { y = com.microsoft.MoE (x) }", opset=21, extra='"com.microsoft" : 1')
    model.graph[0].name = "experts"
    with pytest.raises(ModelRefused) as refused:
        fold(model.graph, {model.graph.inputs[0]: (2,)}, Inference())
    assert str(refused.value) == "node 'experts' (com.microsoft::MoE): npuc has no rule for this operator"


def test_shapes_that_do_not_fit_name_the_node_and_both() -> None:
    with pytest.raises(ModelRefused) as refused:
        folded("g (float[2,A] x, float[4,B] z) => (float[2,B] y) { y = MatMul (x, z) }", (2, 3), (4, 4))
    assert "node 'n0' (MatMul) of FLOAT [2, 3], FLOAT [4, 4]: " in str(refused.value)


CASES = {
    "identity and equal shape": ("a = Identity (x) y = Reshape (a, s)", ["Reshape"], "int64[2] s = {6, 4}"),
    "reshape there and back": (
        "a = Reshape (x, s) b = Reshape (a, t) y = Neg (b)",
        ["Neg"],
        "int64[1] s = {24}, int64[3] t = {2,3,4}",
    ),
    "transposes that cancel": (
        "a = Transpose <perm = [1,0,2]> (x) b = Transpose <perm = [1,0,2]> (a) y = Neg (b)",
        ["Neg"],
        "",
    ),
    "transposes that join": (
        "a = Transpose <perm = [1,0,2]> (x) y = Transpose <perm = [0,2,1]> (a)",
        ["Transpose"],
        "",
    ),
    "unsqueeze is a reshape": ("a = Unsqueeze (x, s) y = Neg (a)", ["Reshape", "Neg"], "int64[1] s = {0}"),
    "equal computations": ("a = Neg (x) b = Neg (x) y = Add (a, b)", ["Neg", "Add"], ""),
    "backward slice of equal shape stays": (
        "y = Slice (x, s, e, a, s)",
        ["Slice"],
        "int64[1] s = {-1}, int64[1] e = {-9}, int64[1] a = {0}",
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_clean(name: str) -> None:
    body, expected, numbers = CASES[name]
    assert cleaned(f"g (float[2,3,4] x) => (float y) <{numbers}> {{ {body} }}", (2, 3, 4)) == expected


def test_neutral_numbers_go_where_shape_and_type_stay() -> None:
    numbers = "float o = {1.0}, float z = {0.0}"
    body = "a = Mul (x, o) b = Add (z, a) c = Div (b, o) y = Neg (c)"
    assert cleaned(f"g (float[2] x) => (float[2] y) <{numbers}> {{ {body} }}", (2,)) == ["Neg"]
    grows = "g (float[1] x) => (float[2] y) <float[2] z = {0.0, 0.0}> { y = Add (x, z) }"
    assert cleaned(grows, (1,)) == ["Add"]


def test_choice_with_a_constant_condition() -> None:
    body = "g (float[2] x) => (float[2] y) <bool[1] f = {1}, float[1] z = {0.0}> { a = Where (f, x, z) y = Neg (a) }"
    assert cleaned(body, (2,)) == ["Neg"]
    other = "g (float[2] x) => (float[2] y) <bool[1] f = {0}, float[1] z = {0.0}> { a = Where (f, x, z) y = Neg (a) }"
    assert cleaned(other, (2,)) == ["Where", "Neg"]


def test_transpose_of_unit_axes_is_a_reshape() -> None:
    assert cleaned("g (float[1,3,4] x) => (float y) { y = Transpose <perm = [1,0,2]> (x) }", (1, 3, 4)) == ["Reshape"]
