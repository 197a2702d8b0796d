"""Mixtures of experts as exporters write them, found by structure and proven by evaluation; and what is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from npuc.frontend.errors import ModelRefused
from npuc.graph.options import BuildOptions
from npuc.graph.pipeline import build
from tests.support.models import DATA

EXPERTS = DATA / "experts"
ROWS = BuildOptions(llm=False, dims={"rows": 6})
# exporter's form: nodes, activation (see npuc.graph.experts.form.KINDS)
FORMS = {
    "loop_torchscript": ("silu", 1),
    "loop_dynamo": ("silu", 1),
    "dense_tile": ("silu", 1),
    "sorted_tokens": ("silu", 1),
    "dense_loop": ("gelu", 0),
}


def mixtures(model: onnx.ModelProto) -> tuple[list[ir.Node], list[str]]:
    seen: list[list[ir.Node]] = []

    def watch(step: str, work: object) -> None:
        if step == "experts":
            seen.append([n for n in work.model.graph if (n.domain, n.op_type) == ("npuc", "MoE")])  # type: ignore[attr-defined]

    graphs = build(ir.from_proto(model), ROWS, stop_after="experts", watch=watch)
    return seen[0], graphs.report


@pytest.mark.parametrize("name", FORMS)
def test_each_exporters_form_is_one_operator(name: str) -> None:
    kind, gated = FORMS[name]
    (node,), report = mixtures(onnx.load(EXPERTS / f"{name}.onnx"))
    attrs = {key: attribute.value for key, attribute in node.attributes.items()}
    assert (attrs["kind"], attrs["gated"]) == (["silu", "gelu"].index(kind), gated)
    clamped = name == "dense_tile"
    assert [round(attrs[key], 3) for key in ("alpha", "limit", "beta")] == (
        [1.702, 7.0, 1.0] if clamped else [1.0, 0.0, 0.0]
    )
    assert [list(value.shape) for value in node.inputs[3:6]] == [[5, 24, 16], [5, 24, 16], [5, 16, 24]]  # type: ignore[union-attr, arg-type]
    (line,) = [line for line in report if "mixture" in line]
    details = f"gated {kind}, alpha 1.702, limit 7, beta 1" if clamped else f"{'gated ' * gated}{kind}"
    assert line.endswith(f"nodes are a mixture of 5 experts of 16 x 24, {details}: proven by evaluation")


def other_activation(model: onnx.ModelProto) -> None:
    """One expert of five has another activation."""
    [n for n in model.graph.node if n.op_type == "Sigmoid"][2].op_type = "Tanh"


def one_expert_left_out(model: onnx.ModelProto) -> None:
    """The last sum takes the one before it twice."""
    adds = [n for n in model.graph.node if n.op_type == "ScatterElements"]
    adds[-1].input[2] = adds[-2].input[2]
    adds[-1].input[1] = adds[-2].input[1]


@pytest.mark.parametrize("change", [other_activation, one_expert_left_out])
def test_what_only_looks_like_experts_is_refused(change: Callable[[onnx.ModelProto], None]) -> None:
    model = onnx.load(EXPERTS / "loop_torchscript.onnx")
    change(model)
    with pytest.raises(ModelRefused) as refused:
        mixtures(model)
    (problem,) = refused.value.problems
    assert problem.startswith(
        "node '/NonZero' (NonZero): the size of its output depends on data, which only mixtures of"
    )
    assert "experts may; behind node '/TopK' (TopK) none is proven: none of " in problem


def test_the_same_form_twice_is_two_operators(tmp_path: Path) -> None:
    """Two layers, one after the other."""
    first = onnx.load(EXPERTS / "sorted_tokens.onnx")
    second = onnx.compose.add_prefix(first, "second.")
    joined = onnx.compose.merge_models(first, second, [(first.graph.output[0].name, second.graph.input[0].name)])
    nodes, report = mixtures(joined)
    assert len(nodes) == 2 and len([line for line in report if "mixture" in line]) == 2
