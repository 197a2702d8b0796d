"""The bound on graphs whose work is known by hand."""

from __future__ import annotations

import json

import onnx.shape_inference
import onnx_ir as ir
import pytest

from npuc.bound import Bound, Canonical, bound_of, bound_record
from npuc.bound.cuts import find_cuts
from npuc.bound.work import Costs, node_work
from npuc.graph.entry import EntryGraph
from npurt.abi.dtypes import DType
from npurt.errors import TargetError
from npurt.target import load_target, scaled
from tests.support.graphs import graph, parsed

NPU = load_target()
RATE, LATENCY, DPU_CLOCK, LAUNCH = 68e9, 300e-9, 1850e6, 2.5e-6


def entry(body: str) -> EntryGraph:
    model = ir.from_proto(onnx.shape_inference.infer_shapes(parsed(body, 21)))
    return EntryGraph("main", 0, 0, model, [], [])


def bound(body: str, **options: object) -> Bound:
    return bound_of(entry(body), NPU, floats=DType.F16, **options)  # type: ignore[arg-type]


def linear(rows: int) -> str:
    """x [rows, 256] times [256, 512]."""
    return f"m (float[{rows}, 256] x, float[256, 512] w) => (float[{rows}, 512] y) {{ y = MatMul (x, w) }}"


def test_a_product():
    found = bound(linear(32))
    assert (found.loaded, found.stored) == (2 * (32 * 256 + 256 * 512), 2 * 32 * 512)
    assert found.parts["ddr"] == pytest.approx(found.loaded / RATE + LATENCY)
    assert found.parts["matrix"] == pytest.approx(32 * 256 * 512 / 1024 / DPU_CLOCK)
    assert (found.parts["vector"], found.parts["cut"]) == (0, 0)  # 32 rows: nothing waits for all of them
    assert found.seconds == max(found.parts.values())


def test_one_row_costs_as_many_macs_as_sixteen():
    assert bound(linear(1)).parts["matrix"] == pytest.approx(bound(linear(16)).parts["matrix"])


def test_a_latency_for_each_largest_double_buffered_load():
    big = "m (float[4000, 1000] x) => (float[4000, 1000] y) { y = Relu (x) }"
    count = 4000 * 1000 * 2
    times = -(-count // (NPU.memories["cmx"].bytes // 2))
    assert times == 11
    assert bound(big).parts["ddr"] == pytest.approx(count / RATE + times * LATENCY)
    assert bound(big, held=False).parts["ddr"] == pytest.approx(count / RATE + LATENCY)


def test_vector_work_and_launches():
    found = bound("m (float[64, 800] x) => (float[64, 800] y) { a = Sigmoid (x) b = Mul (x, a) y = Add (b, x) }")
    # three instructions an element, 8 elements of f16 in a vector, two vector cores; the three may be one kernel
    assert found.parts["vector"] == pytest.approx(3 * 64 * 800 / 8 / 2 / 971e6)
    assert found.parts["launches"] == pytest.approx(LAUNCH)


def test_each_change_to_the_vector_engine_is_a_launch():
    found = bound("""m (float[8, 16] x, float[16, 16] v) => (float[8, 16] y) {
      a = Relu (x) b = MatMul (a, v) c = Identity (b) d = Relu (c) y = MatMul (d, v)
    }""")
    assert found.parts["launches"] == pytest.approx(2 * LAUNCH)


def test_a_bias_goes_through_the_matrix_engine():
    body = """m (float[8, 16] x, float[16, 16] v) => (float[8, 16] y) <float[1] b = {1.0}> {
      a = MatMul (x, v) y = Add (a, b)
    }"""
    assert bound(body).parts["vector"] == 0


ATTENTION = """m (float[1, 4, 2, 16] q, float[1, 2, 2, 16] k, float[1, 2, 2, 16] v, float[1, 2, 64, 16] state.k,
    float[1, 2, 64, 16] state.v, int64 n_past) => (float[1, 4, 2, 16] y) {
  y = npuc.Attention <scale: float = 0.25, window: int = WINDOW> (q, k, v, state.k, state.v, n_past)
}"""


@pytest.mark.parametrize(("window", "seen", "rows"), [(0, 40 + 1 + 40 + 2, 40), (8, 16, 7)])
def test_attention_counts_what_is_seen(window: int, seen: int, rows: int):
    text = ATTENTION.replace("WINDOW", str(window)).replace("state.", "state_")
    model = graph(text, 21, '"npuc": 1')
    for value in model.graph.inputs:
        value.name = (value.name or "").replace("state_", "state.")
    model.graph[0].outputs[0].shape = model.graph.outputs[0].shape
    found = bound_of(EntryGraph("main", 2, 64, model, [], []), NPU, floats=DType.F16, n_past=40)
    pairs = 4 * seen
    # two heads of a group and two rows are 4 of the 16 rows that a product computes
    assert found.parts["matrix"] == pytest.approx(pairs * 32 * 16 / 4 / 1024 / DPU_CLOCK)
    assert found.parts["vector"] == pytest.approx((4 * pairs + 4 * 2 * 16) / 8 / 2 / 971e6)
    assert found.loaded == 2 * (4 * 2 * 16 + 2 * 2 * 2 * 16 + 2 * 2 * rows * 16)


def cuts(body: str) -> list[int]:
    nodes, costs = list(entry(body).model.graph), Costs.of(NPU, DType.F16)
    return find_cuts(nodes, [node_work(node, costs, 0) for node in nodes])


def test_narrow_places():
    head = "m (float[1, 16] x, float[16, 16] v) => (float[1, 16] y) "
    assert cuts(head + "{ a = MatMul (x, v) b = MatMul (a, v) y = MatMul (b, v) }") == [0, 1, 2]
    # a and b do not wait for each other, and the sum can begin with the first of its columns
    assert cuts(head + "{ a = MatMul (x, v) b = MatMul (x, v) y = Add (a, b) }") == []
    rows = "m (float[2, 16] x, float[16, 16] v) => (float[2, 16] y) { y = MatMul (x, v) }"
    assert cuts(rows) == []  # the second row need not wait for the first


def test_what_follows_a_narrow_place_is_loaded_as_far_as_there_is_room():
    """Two products of one row: the second one's weights are larger than the scratchpad."""
    found = bound("""m (float[1, 16] x, float[16, 1024] v, float[1024, 4096] w) => (float[1, 4096] y) {
      a = MatMul (x, v) y = MatMul (a, w)
    }""")
    first, second = 2 * (16 + 16 * 1024), 2 * 1024 * 4096
    room = NPU.memories["cmx"].bytes
    rest = second - room
    after_first = first / RATE + LATENCY + rest / RATE + -(-rest // (room // 2)) * LATENCY
    assert found.loaded == first + second
    assert found.parts["cut"] == pytest.approx(max(found.loaded / RATE + LATENCY, after_first))


def test_the_bound_falls_with_every_cost():
    body = linear(4)
    base = bound(body).seconds
    for key, factor in (("routes.ddr->cmx.rate", 2), ("routes.ddr->cmx.latency", 0.5), ("engines.dpu.clock", 2)):
        faster = bound_of(entry(body), scaled(NPU, key, factor), floats=DType.F16)
        assert faster.seconds <= base


def test_record():
    record = bound_record(entry(linear(1)), NPU, DType.F16)
    assert list(record["parts_us"]) == ["held", "overlapped"]
    assert list(record["parts_us"]["held"]) == ["ddr", "matrix", "vector", "launches", "cut"]
    assert record["ddr_bytes"] == 2 * (256 + 256 * 512 + 512)
    assert record["n_past"] == 0


@pytest.mark.parametrize("target", ["npu40xx", "npu50xx", "ascend950"])
@pytest.mark.parametrize("held", [True, False])
def test_the_canonical_parts_give_the_bound_for_any_step_and_machine(target: str, held: bool):
    text = ATTENTION.replace("WINDOW", "8").replace("state.", "state_")
    model = graph(text, 21, '"npuc": 1')
    for value in model.graph.inputs:
        value.name = (value.name or "").replace("state_", "state.")
    model.graph[0].outputs[0].shape = model.graph.outputs[0].shape
    chain = entry("""m (float[1, 16] x, float[16, 16] v) => (float[1, 16] y) {
      a = MatMul (x, v) b = Softmax (a) c = MatMul (b, v) y = Sigmoid (c)
    }""")
    machine = load_target(target)
    for graphs in (EntryGraph("main", 2, 64, model, [], []), chain):
        stored = json.loads(json.dumps(bound_record(graphs, NPU, DType.F16)["canonical"]))
        for n_past in (0, 5, 64):
            want = bound_of(graphs, machine, floats=DType.F16, n_past=n_past, held=held)
            assert Canonical.from_json(stored).bound(machine, n_past=n_past, held=held) == want
    assert want.parts["cut"] > 0


def test_a_type_that_the_machine_does_not_multiply():
    with pytest.raises(
        TargetError, match=r"^ascend950 multiplies no i32; it takes f16, bf16, i8, u8, e4m3, e5m2, f32$"
    ):
        bound_of(entry(linear(1)), load_target("ascend950"), floats=DType.I32)
