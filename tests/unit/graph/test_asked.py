"""Options that name something the model does not have are refused, and those that change nothing are told."""

from __future__ import annotations

import pytest
from onnx import TensorProto, helper

from npuc.graph import build
from npuc.graph.options import BuildOptions, OptionError
from tests.support.models import CORPUS

LLAMA = CORPUS / "llama-torchdyn-op18" / "model.onnx"


def plain(path):
    node = helper.make_node("Relu", ["x"], ["y"], name="relu")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 4]) for name in "xy"]
    graph = helper.make_graph([node], "plain", values[:1], values[1:])
    file = path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    file.write_bytes(model.SerializeToString())
    return file


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"row": 3}}, "--dim row: the model has no open dimension of that name (there are rows)"),
        (
            {"dims": {"row": 3, "rows": 3, "batch": 1}},
            "--dim row, --dim batch: the model has no open dimension of that name (there are rows)",
        ),
    ],
)
def test_names_that_are_not_there(options, message, tmp_path):
    with pytest.raises(OptionError) as caught:
        build(plain(tmp_path), BuildOptions(**options))
    assert str(caught.value) == message


def test_sizes_that_a_language_model_does_not_take():
    with pytest.raises(OptionError) as caught:
        build(LLAMA, BuildOptions(dims={"batch": 2, "sequence": 7}))
    assert str(caught.value) == (
        "--dim batch, --dim sequence: sizes of a language model's runs follow from --chunk and --capacities, "
        "and batch is 1"
    )
    assert build(LLAMA, BuildOptions(dims={"batch": 1}, max_prompt_len=8, chunk=4)).llm is not None


def test_options_of_language_models_on_a_plain_graph(tmp_path):
    made = build(plain(tmp_path), BuildOptions(dims={"rows": 3}, chunk=4, capacities=(8,)))
    assert "the graph is no language model, so --chunk, --capacities change nothing" in made.report
