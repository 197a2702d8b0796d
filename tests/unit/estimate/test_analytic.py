"""The analytical estimate against simulated programs, and on graphs whose work is known by hand."""

from __future__ import annotations

from pathlib import Path

import onnx.shape_inference
import onnx_ir as ir
import pytest

import npurt
from npuc.estimate import analytic, analytic_record
from npuc.estimate.operations import product_extents
from npuc.graph.entry import EntryGraph
from npuc.graph.options import BuildOptions
from npuc.graph.pipeline import build
from npurt.errors import TargetError
from npurt.target import load_target, parse_target
from npurt.timing import EntryTimer
from tests.support.graphs import parsed
from tests.support.models import compile_to

MODEL = Path(__file__).parents[3] / "npuc" / "data" / "default_model"
NPU = load_target()
TOML = Path(npurt.__file__).parent / "target" / "npu40xx.toml"
RATE, LATENCY, DPU_CLOCK, SHAVE_CLOCK, LAUNCH = 68e9, 300e-9, 1850e6, 971e6, 2.5e-6
TOLERANCE = {"prefill": 0.15, "generate.128": 0.1, "generate.512": 0.1, "head": 0.1}
"""What docs/estimate.md promises; docs/estimate.md has the errors of today."""


def entry(body: str) -> EntryGraph:
    model = ir.from_proto(onnx.shape_inference.infer_shapes(parsed(body, 21)))
    return EntryGraph("main", 0, 0, model, [], [])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> npurt.Image:
    return npurt.load(compile_to(tmp_path_factory.mktemp("estimate") / "model.npu", MODEL))


@pytest.fixture(scope="module")
def entries() -> dict[str, EntryGraph]:
    return {entry.label: entry for entry in build(MODEL, BuildOptions(max_positions=512)).entries}


@pytest.mark.parametrize("held", [True, False], ids=["held", "overlapped"])
@pytest.mark.parametrize("label", TOLERANCE)
def test_against_the_simulated_program(label: str, held: bool, compiled: npurt.Image, entries: dict[str, EntryGraph]):
    simulated = EntryTimer(compiled, compiled.entries[label], NPU).run(held=held)
    found = analytic(entries[label], NPU, held=held)
    assert found.seconds == pytest.approx(simulated.makespan * 1e-12, rel=TOLERANCE[label])


@pytest.mark.parametrize("label", ["generate.128", "generate.512", "head"])
def test_the_bytes_of_a_token_are_those_of_the_program(
    label: str, compiled: npurt.Image, entries: dict[str, EntryGraph]
):
    simulated = EntryTimer(compiled, compiled.entries[label], NPU).run()
    found = analytic(entries[label], NPU)
    assert (found.loaded, found.stored) == (simulated.ddr_read, simulated.ddr_written)


def weighted(body: str) -> EntryGraph:
    """The last input is a weight whose values nobody may read."""
    graph = entry(body)
    inner = graph.model.graph
    weight = inner.inputs.pop()
    assert weight.dtype is not None and weight.shape is not None
    weight.const_value = ir.LazyTensor(
        lambda: pytest.fail("weights are not read"), dtype=weight.dtype, shape=ir.Shape(weight.shape)
    )
    inner.register_initializer(weight)
    return graph


def test_a_product_streams_its_weights():
    """Columns are halved to 128: a tile of weights takes less than a third of 1439 KiB. x is loaded with each."""
    found = analytic(
        weighted("m (float[1, 1024] x, float[1024, 4096] w) => (float[1, 4096] y) { y = MatMul (x, w) }"), NPU
    )
    (cost,) = found.costs
    assert (cost.weights, cost.other, cost.stored) == (2 * 1024 * 4096, 32 * 2 * 1024, 4 * 4096)
    assert (cost.macs, cost.tiles, cost.loads) == (1024 * 4096, 32, 2 * 32)
    assert found.parts["ddr"] == pytest.approx((cost.weights + cost.other) / RATE + 64 * LATENCY)
    assert found.parts["matrix"] == pytest.approx(16 * 1024 * 4096 / 1024 / DPU_CLOCK)  # one row costs as many as 16
    last = (found.parts["matrix"] + cost.stored / RATE + LATENCY) / 32  # behind the last load
    assert found.seconds == pytest.approx(found.parts["ddr"] + last)
    assert found.limited_by == "ddr"


def test_a_chain_of_the_vector_engine_is_one_launch():
    found = analytic(
        entry("m (float[64, 800] x) => (float[64, 800] y) { a = Sigmoid (x) b = Mul (x, a) y = Add (b, x) }"), NPU
    )
    # a load, three instructions and a store an element; 8 elements of f16 in a vector, two vector cores
    assert found.parts["vector"] == pytest.approx((0.75 + 3 + 0.75) * 64 * 800 / 8 / 2 / SHAVE_CLOCK)
    assert found.parts["launches"] == pytest.approx(LAUNCH)
    assert found.limited_by == "vector"


def test_a_value_without_a_place_on_chip_crosses():
    """1000 x 800 in f16 is more than half of the scratchpad: it is stored and loaded again."""
    found = analytic(
        entry("m (float[1000, 800] x, float[1000, 1] g) => (float[1000, 800] y) { a = Softmax (x) y = Mul (a, g) }"),
        NPU,
    )
    softmax, product = found.costs
    assert (softmax.other, softmax.stored) == (1_600_000, 1_600_000)
    assert (product.other, product.stored) == (1_600_000 + 2_000, 3_200_000)
    assert softmax.runs == 4  # 3.2 MB in halves of halves


def test_less_memory_traffic_is_never_slower(entries: dict[str, EntryGraph]):
    times = [analytic(entries["generate.512"], NPU, name).seconds for name in ("f32", "f16", "int8", "int4")]
    assert times == sorted(times, reverse=True)


def test_record(entries: dict[str, EntryGraph]):
    record = analytic_record(entries["head"], NPU)
    assert list(record) == ["n_past", "ddr_bytes", "us", "parts_us"]
    assert list(record["us"]) == list(record["parts_us"]) == ["held", "overlapped"]
    assert list(record["parts_us"]["held"]) == ["ddr", "matrix", "vector", "launches"]
    assert record["us"]["held"] > record["us"]["overlapped"]


def test_a_type_that_the_machine_does_not_multiply():
    graph = entry("m (float[1, 4] x, float[4, 4] w) => (float[1, 4] y) { y = MatMul (x, w) }")
    lines = [line for line in TOML.read_text().splitlines() if not line.startswith("macs_per_cycle.f32")]
    with pytest.raises(TargetError, match=r"^npu40xx multiplies no f32; it takes "):
        analytic(graph, parse_target("poor.toml", "\n".join(lines)), "f32")


@pytest.mark.parametrize(
    ("a", "b", "extents"),
    [
        ("3", "3", (1, 3, 1)), ("2,3", "3", (2, 3, 1)), ("3", "3,5", (1, 3, 5)), ("4,2,3", "3", (8, 3, 1)),
        ("3", "4,3,5", (1, 3, 5)), ("4,2,3", "3,5", (8, 3, 5)), ("4,2,3", "4,3,5", (2, 3, 5)),
    ],
)  # fmt: skip
def test_extents_of_products(a: str, b: str, extents: tuple[int, int, int]) -> None:
    model = parsed(f"g (float[{a}] a, float[{b}] b) => (float y) {{ y = MatMul (a, b) }}", 21)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    (node,) = ir.from_proto(onnx.shape_inference.infer_shapes(model)).graph
    assert product_extents(node) == extents
