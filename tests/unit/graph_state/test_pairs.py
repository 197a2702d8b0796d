"""Pairs of an input and an output that are one state: which are found, which are left alone, which class they have."""
# ruff: noqa: E501 (graphs and messages in one piece)

from __future__ import annotations

import json
import re

import onnx
import onnx_ir as ir
import pytest

from npuc.frontend import ModelRefused, load
from npuc.graph.state import classify, pairs_to_state, state_to_arguments
from npuc.graph.state_names import pair_names
from npuc.graph.state_pairs import find_pairs
from tests.support.graphs import graph
from tests.support.models import CORPUS

TABLE = ",".join("1" * 36)
DECODER = "g (int64[B,S] input_ids, float[B,2,P,2] {before}) => (float[B,S,4] logits, float[B,2,T,2] {after}) " \
          "<float[9,4] e = {{" + TABLE + "}}, int64[4] split = {{0, 0, 2, 2}}> {{ h = Gather (e, input_ids) logits = Relu (h) " \
          "r = Reshape (h, split) rows = Transpose <perm = [0, 2, 1, 3]> (r) {tail} }}"  # fmt: skip


def decoder(tail: str, before: str = "old", after: str = "new") -> ir.Model:
    """The cache `old` with rows of the run, and what `tail` makes `new` of them."""
    tail = re.sub(r"\bold\b", before, re.sub(r"\bnew\b", after, tail))
    return graph(DECODER.format(before=before, after=after, tail=tail))


def classes(model: ir.Model) -> list[tuple[str, str, int | None, str]]:
    pure, states = state_to_arguments(model)
    return [(c.id, c.kind, c.row_axis, c.why) for c in classify(states, pure)]


@pytest.mark.parametrize("name", ["llama-torchdyn-op18", "gpt2-torchdyn-op18"])
def test_pairs_of_real_exports(name):
    index = json.loads((CORPUS / "index.json").read_text())
    pure, states = state_to_arguments(load(CORPUS / name).model)
    assert sorted(s.aliases for s in states) == sorted(map(tuple, index[name]))
    assert {s.id for s in states} == {before for before, _ in index[name]}
    for state, found in zip(states, classify(states, pure), strict=True):
        assert (state.input, state.output, state.form) == (f"state.{state.id}", f"next.{state.id}", "pair")
        assert (state.growing_axis, state.shape[2], state.initial) == (2, -1, None)
        assert (found.kind, found.row_axis) == ("append", 2)
        assert found.rows in {v.name for n in pure.graph for v in n.outputs}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values.layers.0.keys", "cache.layers.0.keys"),
        ("cache_params.layers.0.conv_states.0", "cache.layers.0.conv_states.0"),
        ("past.2.conv", "present.2.conv"),
        ("past_key_self_0", "present_key_self_0"),
        ("state.x", "next.x"),
        ("k_cache_in", "k_cache_out"),
    ],
)
def test_spellings(before, after):
    assert pair_names(["input_ids", before], ["logits", after]) == [(before, after)]


def test_names_that_only_look_alike():
    assert pair_names(["past.0.key", "x"], ["present.0.value", "present.1.key"]) == []


def test_any_names_by_structure_in_a_decoder():
    (found,) = classes(decoder("[k] new = Concat <axis = -2> (old, rows)"))
    assert found == ("old", "append", 2, "node k (Concat) puts 'rows' behind it on axis 2")


def test_structure_is_seen_through_nodes_that_only_pass_on():
    tail = "a = Identity (old) b = Concat <axis = 0> (a) [k] c = Concat <axis = 2> (b, rows) new = Identity (c) s = Shape (old)"
    (found,) = classes(decoder(tail))
    assert found == ("old", "append", 2, "node k (Concat) puts 'rows' behind it on axis 2")


def test_joined_data_of_a_plain_graph_is_no_state():
    model = graph("g (float[N,4] x, float[2,4] z) => (float[M,4] y) { y = Concat <axis = 0> (x, z) }")
    assert state_to_arguments(model).states == []


def test_other_types_or_sizes_are_no_pair():
    body = "g (float[2] past_a, float[2] past_b, float[2] past_c) => (int64[2] present_a, float[3] present_b, float[2] present_c) " \
           "<float[1] w = {1}> { present_a = Cast <to = 7> (past_a) present_b = Concat <axis = 0> (past_b, w) " \
           "present_c = Neg (past_c) }"  # fmt: skip
    assert [s.id for s in state_to_arguments(graph(body)).states] == ["past_c"]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ("[k] new = Concat <axis = 2> (rows, old)", "node k (Concat) has the value as operand 1, not in front"),
        ("[k] new = Concat <axis = 2> (old, rows, rows)", "node k (Concat) joins 3 values"),
        ("n = Neg (old) [k] new = Concat <axis = 2> (n, rows)", "node k (Concat) does not take the value itself"),
        (
            "c = Concat <axis = 2> (old, rows) [k] new = Neg (c)",
            "its next value comes from node k (Neg), not from a Concat",
        ),
    ],
)
def test_why_a_growing_state_is_replaced(tail, reason):
    model = decoder(tail, "past_x", "present_x")
    assert classes(model) == [("past_x", "replace", None, f"{reason}, so each run gives a whole new value")]


def test_a_state_that_only_passes_through():
    model = graph(
        "g (float[2] x, float[2] past_a) => (float[2] y, float[2] present_a) { y = Neg (x) present_a = Identity (past_a) }"
    )
    assert classes(model) == [("past_a", "read_only", None, "its next value is its value")]


def test_narrowed_caches_keep_the_narrow_type():
    tail = "half = Cast <to = 10> (old) low = Cast <to = 10> (rows) [k] both = Concat <axis = 2> (half, low) " \
           "new = Cast <to = 1> (both)"  # fmt: skip
    model = decoder(tail, "past_x", "present_x")
    pure, (state,) = state_to_arguments(model)
    assert state.dtype == onnx.TensorProto.FLOAT16
    assert [v.dtype for v in (*pure.graph.inputs, *pure.graph.outputs) if v.name.endswith("past_x")] == [
        ir.DataType.FLOAT16
    ] * 2
    assert classify([state], pure)[0].kind == "append"
    assert [n.op_type for n in pure.graph].count("Cast") == 1


def test_the_pure_form_is_its_own_input():
    once = state_to_arguments(decoder("new = Concat <axis = 2> (old, rows)"))
    twice = state_to_arguments(once.model)
    assert [(s.id, s.input, s.output) for s in twice.states] == [("old", "state.old", "next.old")]
    assert ir.to_proto(twice.model) == ir.to_proto(once.model)


def test_conversion_is_deterministic():
    first, second = (ir.to_proto(state_to_arguments(load(CORPUS / "gpt2-torchdyn-op18").model).model) for _ in range(2))
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)


def test_pairs_to_state():
    model = load(CORPUS / "gpt2-torchdyn-op18").model
    stateful = pairs_to_state(model)
    onnx.checker.check_model(ir.to_proto(stateful))
    assert [v.name for v in stateful.graph.inputs] == ["input_ids", "attention_mask", "position_ids"]
    assert [v.name for v in stateful.graph.outputs] == ["logits"]
    assert stateful.opset_imports["npuc"] == 1
    assert find_pairs(stateful) == [] and len(find_pairs(model)) == 4
    pairs, variables = state_to_arguments(model).states, state_to_arguments(stateful).states
    assert [(s.id, s.dtype, s.growing_axis, s.input, s.output) for s in variables] == [
        (s.id, s.dtype, s.growing_axis, s.input, s.output) for s in pairs
    ]
    assert {s.shape for s in variables} == {(1, 4, -1, 16)} and {s.form for s in variables} == {"variable"}


def test_pairs_to_state_needs_extents():
    body = DECODER.replace("float[B,2,P,2]", "float[B,2,P,width]").format(
        before="past_x", after="present_x", tail="present_x = Concat <axis = 2> (past_x, rows)"
    )
    with pytest.raises(ModelRefused) as error:
        pairs_to_state(graph(body))
    assert error.value.problems == ("dimension 'width' of the states has no value: give it one, --dim width=N",)
    stateful = pairs_to_state(graph(body), {"width": 2, "B": 3})
    read = next(n for n in stateful.graph if n.op_type == "ReadValue")
    assert read.attributes["shape"].as_ints() == (3, 2, -1, 2)


def test_pairs_to_state_without_pairs():
    with pytest.raises(ModelRefused) as error:
        pairs_to_state(graph("g (float[2] x) => (float[2] y) { y = Relu (x) }"))
    assert error.value.problems == ("the graph has no pair of a state input and a state output",)
