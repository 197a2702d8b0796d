"""Operators that are written out by the standard's definitions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuc import onnx_backend
from npuc.frontend import ModelRefused
from npuc.graph.bodies import BODIES, write_out_bodies
from npuc.graph.nodes import SOURCE
from tests.support.graphs import graph, parsed


def test_every_operator_of_the_table_has_a_definition() -> None:
    without = [name for name in BODIES if not onnx.defs.has(name)]
    assert without == []
    for name in BODIES:
        schema = onnx.defs.get_schema(name)
        assert schema.has_function or schema.has_context_dependent_function, name


def test_nodes_know_what_they_were_made_of() -> None:
    model = graph("g (float[2,4] x) => (float[2,4] y) { [bent] y = HardSwish (x) }", 22)
    assert write_out_bodies(model, llm=None) == 1
    assert {node.op_type for node in model.graph} >= {"HardSigmoid", "Mul"}
    assert {node.metadata_props[SOURCE] for node in model.graph} == {"bent"}
    assert [value.name for value in model.graph.outputs] == ["y"]


def test_a_norm_over_the_last_axis_has_a_kernel_and_stays() -> None:
    body = "g (float[2,3,4] x, float[{0}] s) => (float[2,3,4] y) {{ y = LayerNormalization <axis = {1}> (x, s) }}"
    for shape, axis, count in (("4", -1, 0), ("4", 2, 0), ("3,4", 1, 1)):
        assert write_out_bodies(graph(body.format(shape, axis)), llm=None) == count


def test_a_definition_that_a_set_does_not_have() -> None:
    model = graph("g (float[2,4] x) => (float[2,4] y) { [bent] y = Softsign (x) }", 13)
    assert write_out_bodies(model, llm=None) == 0
    with pytest.raises(ModelRefused) as error:
        write_out_bodies(model, llm=None, all_=True)
    assert str(error.value) == (
        "node 'bent' (Softsign): npuc has no kernel for it, and operator set 13 does not define it by other operators"
    )


@pytest.mark.parametrize("opset", [13, 22])
def test_the_content_is_the_definition(opset: int) -> None:
    x = np.random.default_rng(1).normal(0, 2, (2, 5)).astype(np.float32)
    model = parsed("g (float[2,5] x) => (float[2,5] y) { y = Softsign (x) }", opset)
    np.testing.assert_allclose(onnx_backend.run_model(model, [x])[0], x / (1 + np.abs(x)), rtol=1e-6)
