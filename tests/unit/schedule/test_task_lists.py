"""The two task lists laid out without the compiler: legal on their targets, exact in text, right on real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.check import BarrierLimits, check, check_within
from npuc.schedule import EntryProgram, Limits, ScheduleOptions, schedule, schedule_within
from npuc.schedule.simulate import BarrierMachine
from npuc.tasks.graph import GatherOp, MmaOp, TaskGraph
from npuc.tasks.text import format_tasks, parse_tasks
from npurt.abi.dtypes import DType
from npurt.numerics import round_bf16, round_f16
from npurt.target import load_target
from tests.unit.schedule.task_interpreter import Memory

DATA = Path(__file__).parents[2] / "data" / "tasks"
LISTS = {"flash_npu40xx": "npu40xx", "sparse_gather_ascend950": "ascend950"}
ASCEND = load_target("ascend950")
# flags of this machine join one setter and one waiter; the scheduler's barriers stand for sets of them
ASCEND_LIMITS = Limits(ASCEND.queues, ASCEND.on_chip, 64, 64, 64)


def read(name: str) -> TaskGraph:
    return parse_tasks((DATA / f"{name}.tasks").read_text())


def without_number(name: str) -> str:
    """vector.1 -> vector, dma.in -> dma.in"""
    return name.rpartition(".")[0] if name[-1].isdigit() and "." in name else name


@pytest.mark.parametrize("name", LISTS)
def test_the_text_reads_back_exactly(name: str) -> None:
    text = (DATA / f"{name}.tasks").read_text()
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert format_tasks(parse_tasks(text)) == body


@pytest.mark.parametrize("name", LISTS)
def test_engines_and_memories_are_the_targets(name: str) -> None:
    target = load_target(LISTS[name])
    for index, task in enumerate(read(name).tasks):
        engine = target.engines[without_number(task.engine)]
        scalars = set() if task.flag is None else set(task.flag.reads)  # fetched by the engine's scalar part
        if isinstance(task.op, GatherOp):
            scalars.add(1)
        for regions, allowed in (
            ([region for at, region in enumerate(task.reads) if at not in scalars], engine.reads),
            (task.writes, engine.writes),
        ):
            for region in regions:
                assert without_number(region.buffer.memory) in allowed, (index, task)
                low, high = region.span
                assert 0 <= low and high <= region.buffer.nbytes, (index, region)
        if isinstance(task.op, MmaOp):
            for region in task.reads[:2]:
                assert not any(extent % target.matrix.channel_multiple for extent in region.shape), (index, region)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(out, maximum, logsumexp) of softmax attention in float64; rows without a key give 0, -inf, inf."""
    logits = scale * q.astype(np.float64) @ k.astype(np.float64).T
    if not len(k):
        return np.zeros((len(q), v.shape[1])), np.full(len(q), -np.inf), np.full(len(q), np.inf)
    top = logits.max(1)
    weights = np.exp(logits - top[:, None])
    return weights @ v / weights.sum(1, keepdims=True), top, top + np.log(weights.sum(1))


def flash_inputs(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"q": (128, 64), "k": (192, 64), "v": (192, 64)}
    return {name: round_f16(rng.standard_normal(shape).astype(np.float32)) for name, shape in shapes.items()}


def test_flash_attention_computes_attention() -> None:
    graph, inputs = read("flash_npu40xx"), flash_inputs(1)
    memory = Memory(graph)
    for name, values in inputs.items():
        memory.put(name, values, DType.F16)
    memory.run(graph.tasks)
    expected, _, _ = attention(inputs["q"], inputs["k"], inputs["v"], 0.125)
    # p and out are rounded to f16: 2^-11 of each, |out| < 4
    np.testing.assert_allclose(memory.get("o", DType.F16, (128, 64)), expected, rtol=2e-3, atol=2e-3)


def sparse_inputs(seed: int, spread: float, length: int) -> dict[str, tuple[np.ndarray, DType]]:
    """Indices with invalid ones of every kind; a key row beyond the length is NaN, and must not leak."""
    rng = np.random.default_rng(seed)
    kv = round_bf16(spread * rng.standard_normal((512, 512)).astype(np.float32))
    kv[400:] = np.nan
    index = rng.integers(0, 400, 256).astype(np.int32)
    index[rng.integers(0, 256, 20)] = rng.choice([-1, -123456, 512, 114514, 2147480000, -(2**31)], 20)
    index[length:] = 500
    return {
        "q": (round_bf16(rng.standard_normal((64, 512)).astype(np.float32)), DType.BF16),
        "kv": (kv, DType.BF16),
        "indices": (index, DType.I32),
        "topk_length": (np.array([length], np.int32), DType.I32),
        "attn_sink": (np.where(np.arange(64) % 2, np.float32(0.5), -np.inf).astype(np.float32), DType.F32),
    }


def fill(memory: Memory, inputs: dict[str, tuple[np.ndarray, DType]]) -> None:
    for name, (values, dtype) in inputs.items():
        memory.put(name, values, dtype)


@pytest.mark.parametrize(
    ("spread", "length", "rescales"),
    [(0.1, 256, False), (4.0, 256, True), (0.1, 70, False), (0.1, 0, False)],
    ids=["quiet", "rescaling", "short", "no key"],
)
def test_sparse_attention_computes_attention(spread: float, length: int, rescales: bool) -> None:
    graph, inputs = read("sparse_gather_ascend950"), sparse_inputs(3, spread, length)
    memory = Memory(graph)
    fill(memory, inputs)
    switched_off = memory.run(graph.tasks)
    index = inputs["indices"][0][:length]
    chosen = inputs["kv"][0][index[(index >= 0) & (index < 512)]]
    expected, top, lse = attention(inputs["q"][0], chosen, chosen, 0.0625)
    with np.errstate(over="ignore"):
        expected = expected / (1 + np.exp(inputs["attn_sink"][0] - lse))[:, None] if length else expected
    # 3 blocks after the first: 4 drains, 8 scalings and 4 of 8 products sleep where nothing is rescaled
    quiet = 3 * (4 + 8 + 4)
    assert switched_off < quiet if rescales else switched_off == quiet
    # tolerances of the released kernel's own tests: out 8e-4 or 3.01 / 128, the others 1e-6 or 2.01 / 65536
    out = memory.get("out", DType.BF16, (64, 512))
    np.testing.assert_allclose(out, expected, rtol=3.01 / 128, atol=8e-4 * max(1.0, spread / 0.1))
    np.testing.assert_allclose(memory.get("max_logits", DType.F32, (64,)), top, rtol=2.01 / 65536, atol=1e-6)
    np.testing.assert_allclose(memory.get("lse", DType.F32, (64,)), lse, rtol=2.01 / 65536, atol=1e-6)


def run_eagerly(program: EntryProgram, memory: Memory, favourite: str) -> None:
    """Runs tasks as the barriers allow, those of one queue as early as possible, the rest as late as possible."""
    machine = BarrierMachine(program.queues, program.barriers, program.sync)
    while startable := machine.startable():
        queue = favourite if favourite in startable else startable[-1]
        memory.step(program.tasks[machine.start(queue)])
        machine.finish(queue)
    assert not any(machine.pending.values())


@pytest.mark.parametrize("favourite", ["dma.in", "dma.out", "dpu", "shave"])
def test_scheduled_flash_attention_has_the_bits_of_trace_order(favourite: str) -> None:
    graph = read("flash_npu40xx")
    program = schedule(graph, load_target("npu40xx"))
    assert check(program, load_target("npu40xx")) == []
    results = []
    for memory in (Memory(graph), Memory(graph, program.offsets)):
        for name, values in flash_inputs(2).items():
            memory.put(name, values, DType.F16)
        if results:
            run_eagerly(program, memory, favourite)
        else:
            memory.run(graph.tasks)
        results.append(memory.get("o", DType.F16, (128, 64)))
    np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("favourite", ["mte2.0", "v.1", "m", "fix"])
def test_scheduled_sparse_attention_has_the_bits_of_trace_order(favourite: str) -> None:
    graph = read("sparse_gather_ascend950")
    program = schedule_within(graph, ASCEND_LIMITS, ScheduleOptions())
    assert check_within(program, BarrierLimits(64, 64, 64)) == []
    results = []
    for memory in (Memory(graph), Memory(graph, program.offsets)):
        fill(memory, sparse_inputs(3, 4.0, 250))
        if results:
            run_eagerly(program, memory, favourite)
        else:
            memory.run(graph.tasks)
        results.append(memory.get("out", DType.BF16, (64, 512)))
    np.testing.assert_array_equal(results[0], results[1])


def test_the_vector_pipeline_is_six_deep() -> None:
    """Where each stage of a block stands in the order of the first vector unit's queues: the order of the released
    kernel.
    """
    steps = []
    for task in read("sparse_gather_ascend950").tasks:
        if task.engine in ("vector.0", "mte2.0") and len(task.origin.coord) >= 2 and task.origin.stage != "final o":
            block = task.origin.coord[1]
            if (task.origin.stage, block) not in steps:
                steps.append((task.origin.stage, block))
    middle = steps.index(("nd2nz", 1))
    assert steps[middle : middle + 4] == [("nd2nz", 1), ("check indices", 3), ("gather2", 3), ("nd2nz", 2)]
    assert steps.index(("fetch indices", 3)) < middle < steps.index(("softmax", 0))
    assert steps.index(("softmax", 3)) < steps.index(("scale o", 2)) < steps.index(("skip flag", 3))
