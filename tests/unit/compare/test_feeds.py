"""Inputs made up for a comparison fit the graph; given ones that do not are refused by name."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from npuc.compare.errors import CompareError
from npuc.compare.feeds import check_inputs, check_prompt, seeded_inputs, seeded_prompt
from npuc.graph.entry import LlmInfo, PortSpec

LLM = LlmInfo(50, 8, 4, 10, (8, 12), "input_ids", "hidden", "logits")


def test_the_default_prompt_needs_a_second_chunk() -> None:
    prompt = seeded_prompt(LLM, 4)
    assert len(prompt) == 7 and all(0 <= token < 50 for token in prompt)
    assert prompt == seeded_prompt(LLM, 4)
    assert len(seeded_prompt(LLM, 8)) == 4


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"),
    [
        ([], 0, "the prompt is empty: it needs at least one token"),
        ([1, 50], 0, "the prompt has the id 50: ids of this model are 0 to 49"),
        ([1] * 11, 0, "the prompt has 11 tokens and the limit is 10: give --max-prompt-len 11 or more"),
        (
            [1] * 10, 3,
            "10 prompt tokens and --tokens 3 need 13 cache places, there are 12: "
            "give larger --capacities or fewer tokens",
        ),
    ],
)  # fmt: skip
def test_prompts_that_do_not_fit(prompt: list[int], tokens: int, message: str) -> None:
    with pytest.raises(CompareError) as error:
        check_prompt(LLM, prompt, tokens)
    assert str(error.value) == message


def test_more_tokens_than_places() -> None:
    with pytest.raises(CompareError) as error:
        seeded_prompt(LLM, 12)
    assert str(error.value) == "--tokens 12 leaves no room for a prompt in 12 cache places"


def graph_of(**inputs: tuple[str, list[int]]) -> tuple[ir.Graph, list[PortSpec]]:
    values = [
        ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType[kind]))
        for name, (kind, shape) in inputs.items()
    ]
    table = ir.Value(name="table", shape=ir.Shape([5, 2]), type=ir.TensorType(ir.DataType.FLOAT))
    nodes = [ir.node("Gather", [table, value]) for value in values if value.name == "index"]
    ports = [PortSpec(value.name or "", tuple(inputs[value.name or ""][1]), int(value.dtype or 0)) for value in values]
    return ir.Graph([*values, table], [], nodes=nodes, opset_imports={"": 21}), ports


def test_seeded_inputs_fit_their_meaning() -> None:
    graph, ports = graph_of(
        x=("FLOAT16", [2, 3]), attention_mask=("INT64", [1, 4]), position_ids=("INT64", [1, 4]), index=("INT32", [200]),
        flag=("BOOL", [100]),
    )  # fmt: skip
    found = seeded_inputs(graph, ports)
    assert found["x"].dtype == np.float16 and found["x"].shape == (2, 3)
    assert found["attention_mask"].tolist() == [[1, 1, 1, 1]]
    assert found["position_ids"].tolist() == [[0, 1, 2, 3]]
    assert set(found["index"].tolist()) == {0, 1, 2, 3, 4}
    assert found["flag"].dtype == np.bool_ and set(found["flag"].tolist()) == {False, True}


def test_given_inputs_that_do_not_fit() -> None:
    _, ports = graph_of(x=("FLOAT", [2, 3]), y=("FLOAT", [1]))
    cases = {
        "input 'y' is missing; the inputs are x, y": {"x": np.zeros((2, 3))},
        "there is no input 'z'; the inputs are x, y": {"x": np.zeros((2, 3)), "y": np.zeros(1), "z": np.zeros(1)},
        "input 'x' has the shape [3], [2, 3] is due": {"x": np.zeros(3), "y": np.zeros(1)},
    }
    for message, given in cases.items():
        with pytest.raises(CompareError) as error:
            check_inputs(ports, given)
        assert str(error.value) == message
