"""The fusion rules on graphs written by hand: lookalikes, near misses and their reasons."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from npuc.graph.clean import clean
from npuc.graph.fold import fold
from npuc.graph.fuse.gelu import GeluRule
from npuc.graph.fuse.norms import NormRule
from npuc.graph.fuse.rule import Proofs, Refusal, Rule, Scope, apply_rules
from npuc.graph.infer import Inference
from npuc.graph.nodes import SOURCE, attributes, constant
from tests.support.graphs import graph

NUMBERS = """float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float[8] b = {8, 7, 6, 5, 4, 3, 2, 1}, int64[1] last = {-1},
float one = {1.0}, float half = {0.5}, float two = {2.0}, float three = {3.0}, float eps = {0.001},
float c = {0.044715}, float root = {0.7978846}, float sqrt2 = {1.4142135}"""


def fused(body: str, rule: Rule, kind: str = "float") -> tuple[list[ir.Node], list[Refusal]]:
    """Nodes after folding, one rule and cleaning; y is [2, 3, 8] like x."""
    model = graph(f"g ({kind}[2,3,8] x) => ({kind}[2,3,8] y) <{NUMBERS}> {{ {body} }}", opset=21)
    for index, node in enumerate(model.graph):
        node.name = f"n{index}"
    fold(model.graph, {model.graph.inputs[0]: (2, 3, 8)}, Inference())
    _, refusals = apply_rules([rule], Scope(model.graph, 3, Proofs()))
    clean(model.graph)
    return list(model.graph), refusals


MEAN = "q = Pow (x, two) m = ReduceMean (q, last) e = Add (m, eps) "
RMS = {
    "reciprocal of the root": MEAN + "s = Sqrt (e) r = Reciprocal (s) n = Mul (x, r) y = Mul (w, n)",
    "division by the root": MEAN + "s = Sqrt (e) n = Div (x, s) y = Mul (n, w)",
    "one over the root": MEAN + "s = Sqrt (e) r = Div (one, s) n = Mul (r, x) y = Mul (n, w)",
    "power": "h = Neg (half) q = Mul (x, x) m = ReduceMean (q, last) e = Add (eps, m) r = Pow (e, h) n = Mul (x, r) "
    "y = Mul (n, w)",
    "weight first": MEAN + "s = Sqrt (e) r = Reciprocal (s) v = Mul (w, r) y = Mul (x, v)",
}


@pytest.mark.parametrize("form", list(RMS))
def test_rms_norm(form: str) -> None:
    nodes, refusals = fused(RMS[form], NormRule())
    assert [node.op_type for node in nodes] == ["RMSNorm"]
    assert refusals == []
    assert attributes(nodes[0])["epsilon"] == pytest.approx(0.001)
    assert nodes[0].inputs[1] is not None and nodes[0].inputs[1].name == "w"  # the model's own initializer
    assert nodes[0].metadata_props[SOURCE].split(";")[0] in ("n0", "n1")


def test_rms_norm_with_gain_plus_one_and_without_weight() -> None:
    nodes, _ = fused(MEAN + "s = Sqrt (e) n = Div (x, s) g = Add (w, one) y = Mul (n, g)", NormRule())
    assert [node.op_type for node in nodes] == ["RMSNorm"]
    assert np.array_equal(constant(nodes[0].inputs[1]), np.arange(2, 10))
    nodes, _ = fused(MEAN + "s = Sqrt (e) y = Div (x, s)", NormRule())
    assert [node.op_type for node in nodes] == ["RMSNorm"]
    assert np.array_equal(constant(nodes[0].inputs[1]), np.ones(8))


def test_rms_norm_between_half_precision_tensors_takes_the_casts_in() -> None:
    body = (
        MEAN.replace("(x,", "(v,")
        + "s = Sqrt (e) n = Div (v, s) z = Cast <to = 10> (n) h = Cast <to = 10> (w) y = Mul (z, h)"
    )
    nodes, _ = fused("v = Cast <to = 1> (x) " + body, NormRule(), "float16")
    assert [node.op_type for node in nodes] == ["RMSNorm"]
    assert nodes[0].outputs[0].dtype == ir.DataType.FLOAT16


CENTRE = (
    "a = ReduceMean (x, last) d = Sub (x, a) q = Pow (d, two) m = ReduceMean (q, last) e = Add (m, eps) s = Sqrt (e) "
)


def test_layer_norm() -> None:
    nodes, _ = fused(CENTRE + "n = Div (d, s) g = Mul (n, w) y = Add (g, b)", NormRule())
    assert [node.op_type for node in nodes] == ["LayerNormalization"]
    assert [value.name for value in nodes[0].inputs if value is not None] == ["x", "w", "b"]
    nodes, _ = fused(CENTRE + "n = Div (d, s) y = Mul (n, w)", NormRule())
    assert [len(node.inputs) for node in nodes] == [2]


@pytest.mark.parametrize(
    "body",
    [
        MEAN + "s = Sqrt (e) r = Reciprocal (s) t = Mul (r, r) y = Mul (x, t)",
        CENTRE + "y = Div (x, s)",
    ],
    ids=["one over the mean square", "centred for the spread alone"],
)
def test_near_miss_of_a_norm_stays_and_says_why(body: str) -> None:
    nodes, refusals = fused(body, NormRule())
    assert not {"RMSNorm", "LayerNormalization"} & {node.op_type for node in nodes}
    assert refusals[-1].reason == "nothing that follows it is a norm of one value"
    assert refusals[-1].node.endswith("(ReduceMean)")


def test_plain_mean_is_no_norm_and_no_refusal() -> None:
    nodes, refusals = fused("m = ReduceMean (x, last) y = Sub (x, m)", NormRule())
    assert [node.op_type for node in nodes] == ["ReduceMean", "Sub"]
    assert refusals == []


GELU = {
    "tanh": "p = Pow (x, three) q = Mul (p, c) r = Add (x, q) s = Mul (r, root) t = Tanh (s) u = Add (t, one) "
    "h = Mul (x, half) y = Mul (h, u)",
    "none": "d = Div (x, sqrt2) t = Erf (d) u = Add (t, one) h = Mul (x, u) y = Mul (h, half)",
}


@pytest.mark.parametrize("form", list(GELU))
def test_gelu(form: str) -> None:
    nodes, _ = fused(GELU[form], GeluRule())
    assert [(node.op_type, attributes(node)["approximate"]) for node in nodes] == [("Gelu", form)]


def test_tanh_alone_stays() -> None:
    nodes, _ = fused("t = Tanh (x) y = Mul (t, half)", GeluRule())
    assert [node.op_type for node in nodes] == ["Tanh", "Mul"]
