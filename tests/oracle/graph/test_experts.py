"""npuc.MoE and onnxruntime's MoE: body, expansion and formula against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from npuc.graph.expand.table import expand
from npuc.graph.experts.form import KINDS, Activation, Experts, Stack, mixture
from npuc.graph.functions import add_functions

RNG = np.random.default_rng(5)
E, F, K, N = 4, 6, 5, 5


def run(model: ir.Model, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), options)
    return np.asarray(session.run(None, feeds)[0])


def stack(array: np.ndarray) -> Stack:
    return Stack.of(array.shape, lambda: array)


def made(
    inputs: dict[str, np.ndarray], node: onnx.NodeProto, constants: dict[str, np.ndarray], shape: list[int]
) -> ir.Model:
    helper = onnx.helper
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info("y", 1, shape)],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in (("", 21), ("npuc", 1), ("com.microsoft", 1))]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("gated", "limit", "beta"), [(1, 0.0, 0.0), (1, 0.7, 1.0), (0, 0.0, 0.0)])
def test_the_body_is_the_formula(kind: str, gated: int, limit: float, beta: float) -> None:
    shapes = {"gate": (E, F, K), "up": (E, F, K), "down": (E, N, F), "gb": (E, F), "ub": (E, F), "db": (E, N)}
    constants = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    x = RNG.standard_normal((2, 3, K)).astype(np.float32)
    indices = np.stack([RNG.permutation(E)[:2] for _ in range(6)]).astype(np.int64)
    weights = RNG.uniform(0, 1, (6, 2)).astype(np.float32)
    node = onnx.helper.make_node(
        "MoE", ["x", "indices", "weights", *constants], ["y"], domain="npuc", kind=KINDS.index(kind), gated=gated,
        alpha=1.5, limit=limit, beta=beta,
    )  # fmt: skip
    feeds = {"x": x, "indices": indices, "weights": weights}
    model = made(feeds, node, constants, [2, 3, N])
    add_functions(model)
    c = {name: stack(array) for name, array in constants.items()}
    experts = Experts(c["gate"], c["up"] if gated else None, c["down"], c["gb"], c["ub"] if gated else None, c["db"])
    want = mixture(x.reshape(6, K).astype(np.float64), indices, weights, experts, Activation(kind, 1.5, limit, beta))
    np.testing.assert_allclose(run(model, feeds).reshape(6, N), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalise", [0, 1])
@pytest.mark.parametrize(("kind", "fusion"), [("relu", 0), ("gelu", 0), ("silu", 0), ("identity", 0), ("swiglu", 1)])
def test_onnxruntimes_operator_is_written_out(kind: str, fusion: int, normalise: int, tmp_path: Path) -> None:
    rows = 7
    constants = {
        "w1": RNG.standard_normal((E, F * (2 if fusion else 1), K)).astype(np.float32),
        "b1": RNG.standard_normal((E, F * (2 if fusion else 1))).astype(np.float32),
        "w2": RNG.standard_normal((E, K, F)).astype(np.float32), "b2": RNG.standard_normal((E, K)).astype(np.float32),
    }  # fmt: skip
    extra = {"activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_fusion": 1, "swiglu_limit": 1.5} if fusion else {}
    node = onnx.helper.make_node(
        "MoE", ["x", "logits", *constants], ["y"], domain="com.microsoft", name="moe", k=2, activation_type=kind,
        normalize_routing_weights=normalise, **extra,
    )  # fmt: skip
    feeds = {name: RNG.standard_normal((rows, n)).astype(np.float32) for name, n in (("x", K), ("logits", E))}
    model = made(feeds, node, constants, [rows, K])
    want = run(model, feeds)
    assert expand(model) == 1
    add_functions(model)
    np.testing.assert_allclose(run(model, feeds), want, rtol=2e-4, atol=2e-5)


def test_the_formula_by_hand() -> None:
    """One row, two experts, numbers that can be followed."""
    experts = Experts(
        stack(np.array([[[1.0, 0.0]], [[0.0, 2.0]]])), None, stack(np.array([[[3.0]], [[-1.0]]])), None, None,
        stack(np.array([[0.5], [0.25]])),
    )  # fmt: skip
    got = mixture(np.array([[2.0, 5.0]]), np.array([[1, 0]]), np.array([[0.5, 2.0]]), experts, Activation("identity"))
    assert got.tolist() == [[0.5 * (-10.0 + 0.25) + 2.0 * (6.0 + 0.5)]]
