"""One task of each kind takes what the target's numbers say, to the picosecond."""

from dataclasses import replace

import numpy as np
import pytest

from npurt import load_bytes
from npurt.abi.blob import Reloc
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.abi.records import DmaOp, Predicate, Queue
from npurt.errors import TargetError
from npurt.shave import ProgramBuilder
from npurt.target import Target, load_target
from npurt.timing import PS, Timing, time_entry
from npurt.timing.transfers import record_moves, transfer_costs
from tests.unit.npurt.images import CMX, TinyBlob

F16, F32, I32 = DType.F16, DType.F32, DType.I32
NPU = load_target()
CMX_CLOCK, DPU_CLOCK, RATE, LATENCY = 971e6, 1850e6, 68e9, 300e-9


def timed(blob: TinyBlob, target: Target = NPU, **options: object) -> Timing:
    return time_entry(load_bytes(blob.to_bytes()), blob.name, target, **options)  # type: ignore[arg-type]


def picoseconds(seconds: float) -> int:
    return round(seconds * PS)


def loads(size: tuple[int, ...], **fields: object) -> TinyBlob:
    blob = TinyBlob(cmx=1 << 16, inputs={"x": (F16, (64, 512))})
    blob.dma("x", "cmx", size, F16, **fields)
    return blob


def test_a_load_is_its_latency_and_its_bytes():
    timing = timed(loads((64, 512)))
    assert timing.makespan == picoseconds(LATENCY) + picoseconds(65536 / RATE)
    queue = timing.queues[Queue.DMA_IN]
    assert (queue.stalls, queue.work) == ({"latency": picoseconds(LATENCY)}, picoseconds(65536 / RATE))
    assert (timing.ddr_read, timing.ddr_written) == (65536, 0)


def test_short_pieces_move_in_whole_granules():
    # 64 pieces of 2 bytes, 64 bytes each on the way
    timing = timed(loads((64, 1), src_stride=(0, 0, 1024, 2)))
    assert timing.queues[Queue.DMA_IN].work == picoseconds(64 * 64 / RATE)
    assert timing.ddr_read == 128
    # pieces of 128 bytes fill their granules, and rows that touch are one piece
    assert timed(loads((4, 64), src_stride=(0, 0, 1024, 2))).queues[0].work == picoseconds(4 * 128 / RATE)
    assert timed(loads((4, 7))).queues[0].work == picoseconds(64 / RATE)


def test_a_copy_inside_device_memory_and_one_inside_the_scratchpad():
    blob = TinyBlob(inputs={"x": (F16, (4, 512))}, outputs={"y": (F16, (4, 512))})
    blob.dma("x", "y", (4, 512), F16)
    timing = timed(blob)
    assert timing.makespan == picoseconds(LATENCY) + picoseconds(4096 / 34e9)
    assert (timing.ddr_read, timing.ddr_written) == (4096, 4096)
    blob = TinyBlob(cmx=8192)
    blob.dma("cmx", "cmx", (4, 512), F16, dst_offset=4096)
    assert timed(blob).makespan == picoseconds(32 / CMX_CLOCK) + picoseconds(64 / CMX_CLOCK)


def test_rows_beyond_the_valid_ones_are_cleared_and_not_read():
    blob = TinyBlob(rows=8, cmx=1 << 16, inputs={"x": (F16, (8, 512))})
    blob.dma("x", "cmx", (8, 512), F16, step={Reloc.STEP_VALID: ("step.n_new", -6)})
    timing = timed(blob)  # all 8 rows are new: 2 are read
    assert timing.queues[Queue.DMA_IN].work == picoseconds(2048 / RATE + 6144 / (64 * CMX_CLOCK))
    assert timing.ddr_read == 2048


def test_a_task_whose_predicate_is_false_takes_no_time():
    blob = loads((64, 512), pred=Predicate.PAST_GT, pred_value=10)
    timing = timed(blob, n_past=0)
    assert (timing.makespan, timing.ddr_read) == (0, 0)


@pytest.mark.parametrize(
    ("above", "width", "acts"), [(-1, 1, True), (-3, 3, True), (-1, 0, False), (-3, 2, False), (0, 9, False)]
)
def test_a_predicate_of_a_range_has_two_ends(above: int, width: int, acts: bool):
    blob = loads((64, 512), pred=Predicate.PAST_IN, pred_value=above, pred_base=width)
    assert timed(blob, n_past=0).ddr_read == acts * 64 * 512 * 2


def test_a_fill_writes_at_the_engines_own_rate():
    blob = TinyBlob(cmx=4096)
    blob.dma("cmx", "cmx", (2, 512), F16, op=DmaOp.FILL)
    assert timed(blob).queues[Queue.DMA_OUT].work == picoseconds(2048 / (64 * CMX_CLOCK))


@pytest.mark.parametrize(
    ("m", "n", "k", "macs"),
    [(16, 16, 16, 16**3), (1, 16, 32, 16 * 16 * 32), (17, 16, 16, 32 * 16 * 16), (3, 5, 7, 16**3)],
)
def test_a_product_is_its_macs_in_whole_steps(m: int, n: int, k: int, macs: int):
    blob = TinyBlob(cmx=1 << 16)
    blob.dpu(m, n, k, (F16, F16, F32), (0, 8192, 16384))
    assert timed(blob).makespan == picoseconds(max(macs / 1024 / DPU_CLOCK, operand_bytes(m, n, k) / 248.6e9))


def operand_bytes(m: int, n: int, k: int) -> int:
    return 2 * m * k + 2 * n * k + 4 * m * n


def vectors(dtype: DType, shape: tuple[int, ...], ops: tuple[Op, ...]) -> TinyBlob:
    """y = ops(x), each op on the last value."""
    build = ProgramBuilder()
    x, y = build.arg(ArgMode.IN, dtype, shape), build.arg(ArgMode.OUT, dtype, shape)
    value = build.load(x)
    for op in ops:
        value = build.op(op, value)
    build.store(y, value)
    blob = TinyBlob(cmx=1 << 16)
    blob.shave(build.bytes(), [(CMX, 0, 0), (CMX, 0, 32768)])
    return blob


@pytest.mark.parametrize(("dtype", "item"), [(F16, 2), (F32, 4)])
def test_a_vector_program_is_its_launch_and_its_instructions(dtype: DType, item: int):
    timing = timed(vectors(dtype, (32, 100), (Op.NEG, Op.EXP)))
    vectors_each = -(-32 * 100 * item // 16)
    cycles = (0.75 + 1 + 1 + 0.75) * vectors_each / 2
    queue = timing.queues[Queue.SHAVE]
    assert (queue.launch, queue.work) == (picoseconds(2.5e-6), picoseconds(cycles / CMX_CLOCK))


def test_one_instruction_between_load_and_store_has_the_published_slope():
    """1.6e-4 us for each byte of f16 output on one vector core, within the difference of the two clocks."""
    timing = timed(vectors(F16, (128, 100), (Op.SIGMOID,)))
    slope = timing.queues[Queue.SHAVE].work / PS * 2 / (128 * 100 * 2)
    assert slope == pytest.approx(1.6e-10, rel=0.01)


def test_rounding_is_free_in_lanes_of_its_own_width():
    plain, rounded = (timed(vectors(F16, (64, 64), ops)).makespan for ops in ((Op.NEG,), (Op.NEG, Op.ROUND_F16)))
    assert plain == rounded
    plain, rounded = (timed(vectors(F32, (64, 64), ops)).makespan for ops in ((Op.NEG,), (Op.NEG, Op.ROUND_F16)))
    assert plain < rounded


def test_waiting_and_working_fill_the_whole_run():
    blob = TinyBlob(cmx=1 << 16, inputs={"x": (F16, (64, 64))}, outputs={"y": (F32, (64, 64))})
    blob.dma("x", "cmx", (64, 64), F16, post=(0,), start_after=1)
    blob.dpu(64, 64, 64, (F16, F16, F32), (0, 8192, 16384), wait=(0,), post=(1,), start_after=2)
    blob.dma("cmx", "y", (64, 64), F32, src_offset=16384, wait=(1,), start_after=2)
    blob.barriers = [(0, 1, 1), (1, 1, 1)]
    timing = timed(blob)
    parts = [8192 / RATE, 64**3 / 1024 / DPU_CLOCK, 16384 / RATE]
    assert timing.makespan == 2 * picoseconds(LATENCY) + sum(map(picoseconds, parts))
    for queue in timing.queues:
        assert queue.busy + sum(queue.stalls.values()) + queue.idle == timing.makespan
    assert list(timing.queues[Queue.DPU].stalls) == ["wait dma.in"]
    assert list(timing.queues[Queue.DMA_OUT].stalls) == ["latency", "wait dpu"]
    assert timing.queues[Queue.SHAVE].idle == timing.makespan
    assert np.array_equal(timing.times.cause, [-1, 2, 0])


def test_assumed_numbers_are_those_that_the_run_used():
    assert "engines.shave.cycles.load" not in timed(loads((4, 4))).assumed
    assert "routes.ddr->ddr.rate" not in timed(loads((4, 4))).assumed
    assert "engines.shave.cycles.load" in timed(vectors(F16, (4,), (Op.NEG,))).assumed
    assert "engines.dma.in.outstanding" in timed(loads((4, 4)), held=False).assumed


def test_a_blob_needs_the_queues_of_its_records():
    with pytest.raises(TargetError, match=r"^target ascend950 cannot run a blob: it has no dma\.in, dma\.out"):
        timed(loads((4, 4)), load_target("ascend950"))


def gathered(rows: int) -> np.ndarray:
    """DMA records of one gather of `rows` rows of 1 KiB."""
    blob = TinyBlob(cmx=1 << 17, inputs={"x": (F16, (64, 512)), "at": (I32, (64,))})
    blob.dma(
        "x", "cmx", (rows, 512), F16, op=DmaOp.GATHER, index_base=blob.base("at"), index_bound=64,
        src_stride=(0, 0, 1024, 2),
    )  # fmt: skip
    return load_bytes(blob.to_bytes()).tables.dma


@pytest.mark.parametrize(("rows", "requests"), [(2, 1), (3, 2), (64, 32)])
def test_requests_of_a_gather_wait_for_those_in_flight(rows: int, requests: int):
    """A machine with 2 rows in a request and 4 requests in flight: each 4 beyond the first take a latency more."""
    engines = dict(NPU.engines)
    engines["dma.in"] = replace(engines["dma.in"], gather_rows=2, outstanding=4)
    kinds = np.array([1, 2, 3, 4, 5, 5], np.uint32)
    slow = replace(NPU, engines=engines)
    found = transfer_costs(record_moves(gathered(rows), kinds, slow), slow)
    assert found.seconds[0] == pytest.approx(max(rows * 1024 / RATE, (requests - 1) / 4 * LATENCY))
    plain = transfer_costs(record_moves(gathered(rows), kinds, NPU), NPU)
    assert plain.seconds[0] == pytest.approx(rows * 1024 / RATE)
