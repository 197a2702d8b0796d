"""The pipeline as a whole: the contract of its entries, its steps, its errors, and that it is deterministic."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest

from npuc.frontend import ModelRefused, load
from npuc.graph import BuildOptions, OptionError, build
from npuc.graph.entry import EntryGraph, ModelGraphs, PortSpec
from npuc.graph.nodes import SOURCE, attributes
from npuc.graph.pipeline import STEP_NAMES
from npuc.graph.verify import BrokenGraph, verify_folded, verify_static, verify_structure
from npurt.abi.dtypes import DType
from tests.support.graphs import graph, written
from tests.support.models import CORPUS, make_case

LLAMA, GPT2 = CORPUS / "llama-torchdyn-op18" / "model.onnx", CORPUS / "gpt2-torchdyn-op18" / "model.onnx"
SIZES = BuildOptions(chunk=4, max_prompt_len=10, capacities=(8, 16))
INT64, FLOAT = int(ir.DataType.INT64), int(ir.DataType.FLOAT)


@pytest.fixture(scope="module")
def llama() -> ModelGraphs:
    return build(LLAMA, SIZES)


def operators(entry: EntryGraph) -> list[str]:
    return [node.op_type for node in entry.model.graph]


def test_entries_have_the_ports_of_the_contract(llama: ModelGraphs) -> None:
    assert [(e.label, e.rows, e.capacity) for e in llama.entries] == [
        ("prefill", 4, 8),
        ("generate.8", 1, 8),
        ("generate.16", 1, 16),
        ("head", 1, 0),
    ]
    caches = [f"past_key_values.{i}.{n}" for i in (0, 1) for n in ("key", "value")]
    for label, rows, slots in (("prefill", 4, 8), ("generate.8", 1, 8), ("generate.16", 1, 16)):
        entry = llama.entry(label)
        assert entry.inputs == [
            PortSpec("input_ids", (1, rows), INT64),
            PortSpec("n_past", (), INT64),
            PortSpec("n_new", (), INT64),
            *(PortSpec(f"state.{name}", (1, 2, slots, 16), FLOAT) for name in caches),
        ]
        assert entry.outputs == [
            PortSpec("hidden", (1, rows, 64), FLOAT),
            *(PortSpec(f"next.{name}", (1, 2, rows, 16), FLOAT) for name in caches),
        ]
    assert llama.entry("head").inputs == [PortSpec("hidden", (1, 1, 64), FLOAT)]
    assert llama.entry("head").outputs == [PortSpec("logits", (1, 1, 320), FLOAT)]
    assert operators(llama.entry("head")) == ["MatMul"]


def test_states_are_caches_of_the_largest_capacity(llama: ModelGraphs) -> None:
    assert {(s.shape, s.dtype, s.kind, s.row_axis) for s in llama.states} == {((1, 2, 19, 16), DType.F32, "append", 2)}
    first = llama.states[0]
    assert (first.id, first.input, first.output) == (
        "past_key_values.0.key",
        "state.past_key_values.0.key",
        "next.past_key_values.0.key",
    )
    assert first.why == "node node_cat_7 (Concat) puts 'add_269' behind it on axis 2"


def test_numbers_of_the_language_model(llama: ModelGraphs) -> None:
    assert llama.llm is not None
    assert (llama.llm.vocab, llama.llm.hidden, llama.llm.chunk, llama.llm.max_prompt_len) == (320, 64, 4, 10)
    assert llama.llm.capacities == (8, 16)


def test_fused_operators_know_their_sources(llama: ModelGraphs) -> None:
    first = next(node for node in llama.entry("prefill").model.graph if node.op_type == "Attention")
    assert attributes(first) == {"scale": pytest.approx(0.25), "softcap": 0.0, "window": 0}
    names = first.metadata_props[SOURCE].split(";")
    assert "node_Softmax_236" in names and "node_scaled_dot_product_attention" in names
    assert [value.name for value in first.inputs[3:] if value is not None] == [
        "state.past_key_values.0.key",
        "state.past_key_values.0.value",
        "n_past",
    ]


def test_tables_reach_as_far_as_any_entry_reads(llama: ModelGraphs) -> None:
    for entry in llama.entries[:3]:
        for node in entry.model.graph:
            if node.op_type == "StepRows":
                table = node.inputs[0].const_value  # type: ignore[union-attr]
                assert table is not None and tuple(table.shape) == (16 + 4, 8)


def test_position_table_bounds_the_default_capacity() -> None:
    graphs = build(GPT2)
    assert graphs.llm is not None
    assert graphs.llm.capacities == (64, 128)
    assert graphs.report[0] == (
        "limited to 128 tokens (a position table of the model has (node 'node_embedding_1' (Gather): "
        "Gather reads row 128 of a table of 128)): prompts up to 64, then 64 new tokens or more"
    )
    with pytest.raises(
        OptionError, match=r"^capacity 200 is beyond the 128 tokens that a position table of the model has"
    ):
        build(GPT2, BuildOptions(capacities=(200,)))


def test_configuration_bounds_the_default_capacity() -> None:
    graphs = build(LLAMA, BuildOptions(max_positions=100))
    assert graphs.llm is not None and graphs.llm.capacities == (64, 100)


def test_two_builds_give_the_same_bytes(llama: ModelGraphs) -> None:
    again = build(load(LLAMA), SIZES)
    for entry, other in zip(llama.entries, again.entries, strict=True):
        assert ir.to_proto(entry.model).SerializeToString(deterministic=True) == (
            ir.to_proto(other.model).SerializeToString(deterministic=True)
        )
    assert llama.report == again.report


def test_build_leaves_the_given_model_as_it_is() -> None:
    loaded = load(GPT2)
    before = ir.to_proto(loaded.model).SerializeToString(deterministic=True)
    build(loaded, SIZES)
    assert ir.to_proto(loaded.model).SerializeToString(deterministic=True) == before


def test_stop_after_and_dump(tmp_path: Path) -> None:
    graphs = build(GPT2, SIZES, stop_after="cut", dump_after=["normalise", "cut"], dump_dir=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cut.generate.16.onnx",
        "cut.generate.8.onnx",
        "cut.head.onnx",
        "cut.prefill.onnx",
        "normalise.onnx",
    ]
    assert "Softmax" in operators(graphs.entry("prefill"))
    assert list(graphs.timings) == list(STEP_NAMES[: STEP_NAMES.index("cut") + 1])


@pytest.mark.parametrize("step", STEP_NAMES)
def test_a_build_can_stop_after_every_step(step: str) -> None:
    graphs = build(GPT2, SIZES, stop_after=step)
    assert list(graphs.timings)[-1] == step
    fold, cut = STEP_NAMES.index("fold"), STEP_NAMES.index("cut")
    before = {**dict.fromkeys(STEP_NAMES[:fold], 0), **dict.fromkeys(STEP_NAMES[fold:cut], 3)}
    assert len(graphs.entries) == before.get(step, 4)
    assert (graphs.llm is not None) == (step == STEP_NAMES[-1])


def test_unknown_step_lists_the_steps() -> None:
    with pytest.raises(OptionError) as error:
        build(GPT2, stop_after="fuse")
    assert str(error.value) == f"there is no step 'fuse'; the steps are {', '.join(STEP_NAMES)}"


def test_unknown_entry_lists_the_entries(llama: ModelGraphs) -> None:
    with pytest.raises(KeyError, match=r"no entry 'main'; this model has prefill, generate.8, generate.16, head"):
        llama.entry("main")


def test_open_dim_of_a_plain_graph_is_named_with_its_option(tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[rows_of_x,4] x) => (float[rows_of_x,4] y) { y = Relu (x) }")
    with pytest.raises(ModelRefused) as refused:
        build(path)
    assert str(refused.value).endswith("dim 'rows_of_x' of input 'x' has no value; give it with --dim rows_of_x=VALUE")
    graphs = build(path, BuildOptions(dims={"rows_of_x": 3}))
    assert graphs.entries[0].inputs == [PortSpec("x", (3, 4), FLOAT)]
    assert graphs.llm is None


def test_language_model_as_a_plain_graph_has_its_own_inputs_and_outputs() -> None:
    with pytest.raises(
        ModelRefused, match=r"dim 'past_sequence' of input 'past_key_values.0.key' has no value; give it with"
    ):
        build(LLAMA, BuildOptions(llm=False))
    sizes = {"batch": 1, "sequence": 3, "past_sequence": 5, "total_sequence": 8}
    graphs = build(LLAMA, BuildOptions(llm=False, dims=sizes))
    (entry,) = graphs.entries
    assert (entry.label, graphs.states, graphs.llm) == ("main", [], None)
    assert [port.name for port in entry.inputs][3:5] == ["past_key_values.0.key", "past_key_values.0.value"]
    assert PortSpec("present.1.value", (1, 2, 8, 16), FLOAT) in entry.outputs


def test_plain_graph_asked_for_as_a_language_model(tmp_path: Path) -> None:
    path = written(tmp_path, "g (float[2,4] x) => (float[2,4] y) { y = Relu (x) }")
    with pytest.raises(ModelRefused) as refused:
        build(path, BuildOptions(llm=True))
    assert str(refused.value) == "the graph is no language model: it has no token ids input"


def test_states_of_a_plain_graph(tmp_path: Path) -> None:
    path, _ = make_case("a11_assign_first", tmp_path)
    graphs = build(path)
    assert [(s.id, s.kind, s.shape, s.input, s.output) for s in graphs.states] == [
        ("carry", "replace", (2, 4), "state.carry", "next.carry"),
        ("carry_too", "replace", (2, 4), "state.carry_too", "next.carry_too"),
    ]
    assert graphs.states[0].initial is not None and graphs.states[0].initial.shape == (2, 4)


def test_state_of_a_plain_graph_must_keep_its_shape(tmp_path: Path) -> None:
    body = """g (float[2,4] x) => (float[2,4] y) {
        before = npuc.ReadValue <variable_id = "v", shape = [2, 4], dtype = 1> ()
        y = Add (before, x)
        next = Concat <axis = 0> (before, x)
        kept = npuc.Assign <variable_id = "v", shape = [2, 4], dtype = 1> (next) }"""
    with pytest.raises(ModelRefused, match="variable 'v'"):
        build(written(tmp_path, body, extra='"npuc" : 1'))


BROKEN = "g (float[2] x) => (float[2] y) { a = Neg (x) y = Neg (a) }"


def test_verifier_finds_a_value_read_before_it_is_made() -> None:
    model = graph(BROKEN, opset=21)
    first, second = model.graph
    model.graph.remove(first)
    model.graph.insert_after(second, first)
    with pytest.raises(BrokenGraph, match=r"^after test: node .* \(Neg\) reads 'a' before it is made$"):
        verify_structure(model.graph, "test")


def test_verifier_finds_a_name_used_twice() -> None:
    model = graph(BROKEN, opset=21)
    model.graph[0].outputs[0].name = "y"
    with pytest.raises(BrokenGraph, match=r"^after test: the name 'y' is used by"):
        verify_structure(model.graph, "test")


def test_verifier_finds_values_without_shape_and_shape_arithmetic() -> None:
    model = graph("g (float[2] x) => (int64[1] y) <int64[1] two = {2}> { s = Shape (x) y = Neg (two) }", opset=21)
    with pytest.raises(BrokenGraph, match="makes 's' without a static shape and type"):
        verify_static(model.graph, "test")
    with pytest.raises(BrokenGraph, match=r"\(Shape\) still computes what follows from shapes"):
        verify_folded(model.graph, "test")
    model.graph.remove(model.graph[0])
    with pytest.raises(BrokenGraph, match=r"\(Neg\) still computes what follows from shapes"):
        verify_folded(model.graph, "test")
