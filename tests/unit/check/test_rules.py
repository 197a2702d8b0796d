"""Rules of the checker that faults in a real schedule do not reach, on programs of a few tasks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuc.check import BarrierLimits, CheckFailed, check, check_within, require
from npuc.schedule import Barrier, EntryProgram, ScheduleRefused, Sync, schedule
from npuc.tasks.graph import Buffer, CallOp, CopyOp, Origin, Region, Role, StepValue, Task, TaskGraph
from npurt.abi.dtypes import DType
from npurt.target import load_target

TARGET = load_target("npu40xx")
LIMITS = BarrierLimits(16, 64, 64)


def view(buffer: Buffer, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Region:
    return Region(buffer, offset, DType.I8, shape, stride)


def whole(buffer: Buffer) -> Region:
    return view(buffer, 0, (buffer.nbytes,), (1,))


def unordered(tasks: list[Task], offsets: dict[Buffer, int] | None = None) -> EntryProgram:
    """Tasks in the queue of their engine, without a barrier."""
    offsets = offsets or {}
    peaks = {m: max(o + b.nbytes for b, o in offsets.items() if b.memory == m) for m in {b.memory for b in offsets}}
    return EntryProgram("main", 0, 0, tasks, [t.engine for t in tasks], offsets, [], [Sync()] * len(tasks), peaks, {})


def rules(program: EntryProgram) -> list[str]:
    return [finding.rule for finding in check_within(program, LIMITS)]


SOURCE = Buffer("source", "ddr", 256, Role.INPUT)
STATE = Buffer("state", "ddr", 2 * 32 * 16, Role.STATE)  # 2 groups of 32 rows of 16 B
NEW = Buffer("new", "ddr", 64, Role.INPUT)
PAST = Buffer("past", "cmx", 128)


def store_new(rows: int = 1) -> Task:
    """New rows of both groups at row n_past."""
    region = view(STATE, 0, (2, rows, 16), (512, 16, 1))
    return Task(
        "dma.out", CopyOp(row_dim=1, shift_dst="n_past"), (view(NEW, 0, (2, rows, 16), (32, 16, 1)),), (region,)
    )


def load_past(row: int, add: int) -> Task:
    """Four rows of both groups from `row` on, as far as they are below n_past + row + add."""
    op = CopyOp(row_dim=1, valid=StepValue("n_past", add))
    region = view(STATE, 16 * row, (2, 4, 16), (512, 16, 1))
    return Task("dma.in", op, (region,), (view(PAST, 0, (2, 4, 16), (64, 16, 1)),))


@pytest.mark.parametrize(
    ("row", "add", "found"),
    [(0, 0, []), (8, -8, []), (8, -9, []), (8, -7, ["WAR"]), (0, 1, ["WAR"])],
)
def test_rows_of_the_past_end_where_new_rows_begin(row: int, add: int, found: list[str]) -> None:
    assert rules(unordered([load_past(row, add), store_new()], {PAST: 0})) == found


def test_rows_bounded_by_another_field_may_be_new() -> None:
    task = load_past(0, 0)
    task.op = CopyOp(row_dim=1, valid=StepValue("n_new", 0))
    assert rules(unordered([task, store_new()], {PAST: 0})) == ["WAR"]


def test_a_read_before_any_write_and_a_write_of_an_input() -> None:
    tasks = [
        Task("dpu", CallOp("f", b"", ()), (whole(PAST),), (whole(PAST),)),
        Task("dma.out", CopyOp(), (whole(PAST),), (view(SOURCE, 0, (128,), (1,)),)),
    ]
    assert sorted(rules(unordered(tasks, {PAST: 0}))) == ["RAW", "read-only", "unwritten"]


def test_two_queues_on_columns_of_one_matrix_need_no_order() -> None:
    left, right = view(PAST, 0, (8, 8), (16, 1)), view(PAST, 8, (8, 8), (16, 1))
    tasks = [Task("dpu", CallOp("f", b"", ()), (), (left,)), Task("shave", CallOp("f", b"", ()), (), (right,))]
    assert rules(unordered(tasks, {PAST: 0})) == []
    wider = view(PAST, 7, (8, 8), (16, 1))
    tasks[1] = Task("shave", CallOp("f", b"", ()), (), (wider,))
    assert rules(unordered(tasks, {PAST: 0})) == ["WAW"]


def test_a_finding_names_tasks_and_buffers() -> None:
    load = Task(
        "dma.in", CopyOp(), (view(SOURCE, 0, (128,), (1,)),), (whole(PAST),), Origin(node="attn", stage="load k")
    )
    use = Task("dpu", CallOp("f", b"", ()), (whole(PAST),), (), Origin(node="attn", kernel="flash"))
    program = replace(unordered([load, use], {PAST: 0}), memory_bytes={"cmx": TARGET.on_chip["cmx"]})
    with pytest.raises(CheckFailed) as failed:
        require(program, TARGET)
    assert str(failed.value).splitlines() == [
        "entry main: 1 findings",
        "  RAW: nothing orders task 0 attn load k on Buffer(past, cmx, 128 B, local) and "
        "task 1 attn flash on Buffer(past, cmx, 128 B, local)",
    ]


def test_slots_are_limited() -> None:
    tasks = [
        Task("dpu", CallOp("f", b"", ()), (), (whole(PAST),)),
        Task("shave", CallOp("f", b"", ()), (whole(PAST),), ()),
    ]
    sync = [Sync((), (0,), 1), Sync((0,), (), 1)]
    program = replace(unordered(tasks, {PAST: 0}), barriers=[Barrier(0, 1, 1)], sync=sync)
    assert check_within(program, LIMITS) == []
    assert [finding.rule for finding in check_within(program, BarrierLimits(16, 1, 1))] == ["barrier-slots"]


def test_a_program_that_can_get_stuck() -> None:
    """Each task is the only poster of what the other waits for."""
    tasks = [Task("dpu", CallOp("f", b"", ()), (), ()), Task("shave", CallOp("f", b"", ()), (), ())]
    sync = [Sync((1,), (0,), 2), Sync((0,), (1,), 2)]
    program = replace(unordered(tasks), barriers=[Barrier(0, 1, 1), Barrier(1, 1, 1)], sync=sync)
    assert [str(finding) for finding in check_within(program, LIMITS)] == [
        "deadlock: 2 tasks can never start, the first are [0, 1]",
        "backward: barrier 1: task 1 posts it, task 0 before it in trace order waits",
    ]


def test_the_machine_is_compared() -> None:
    load = Task("dma.in", CopyOp(), (view(SOURCE, 0, (128,), (1,)),), (whole(PAST),))
    program = schedule(TaskGraph("main", [load]), TARGET)
    assert check(program, TARGET) == []
    larger = replace(program, memory_bytes={"cmx": 1 << 30})
    assert [str(finding) for finding in check(larger, TARGET)] == [
        "memory-size: cmx is taken to have 1073741824 B, the target has 1473536"
    ]


def test_an_engine_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScheduleRefused) as refused:
        schedule(TaskGraph("main", [Task("cube", CallOp("f", b"", ()), (), ())]), TARGET)
    assert str(refused.value) == "entry main: task 0 () wants engine cube; the target has dma.in, dma.out, dpu, shave"


def test_a_graph_without_tasks_is_a_program_without_tasks() -> None:
    program = schedule(TaskGraph("main"), TARGET)
    assert (program.tasks, program.barriers, program.peaks) == ([], [], {})
    assert check(program, TARGET) == []
