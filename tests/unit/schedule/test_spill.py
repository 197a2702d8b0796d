"""Spilling: which buffer leaves the chip, how its content comes back, and what is refused."""

from __future__ import annotations

import pytest

from npuc.check import BarrierLimits, check_within
from npuc.schedule import Limits, OverflowRefused, ScheduleOptions, schedule_within
from npuc.schedule.limits import Ways
from npuc.tasks.graph import Buffer, CallOp, CopyOp, MmaOp, Origin, Region, Role, StepValue, Task, TaskGraph, When
from npuc.tasks.program import EntryProgram, Spills
from npurt.abi.dtypes import DType

QUEUES = {queue: queue for queue in ("dma.in", "dma.out", "dpu", "shave")}
WEIGHTS = Buffer("weights", "ddr", 1 << 16, Role.CONST)
STATE = Buffer("state", "ddr", 64 * 64, Role.STATE)


def whole(buffer: Buffer, nbytes: int | None = None) -> Region:
    return Region(buffer, 0, DType.I8, (nbytes or buffer.nbytes,), (1,))


def local(name: str, nbytes: int = 1024) -> Buffer:
    return Buffer(name, "cmx", nbytes)


def load(buffer: Buffer, source: Buffer = WEIGHTS, when: When | None = None, op: CopyOp | None = None) -> Task:
    origin = Origin(node="n", stage=f"load {buffer.name}")
    return Task("dma.in", op or CopyOp(), (whole(source, buffer.nbytes),), (whole(buffer),), origin, when)


def call(reads: list[Buffer], writes: list[Buffer], when: When | None = None) -> Task:
    origin = Origin(node="n", stage=f"make {' '.join(buffer.name for buffer in writes)}")
    return Task("shave", CallOp("f", b"", ()), tuple(map(whole, reads)), tuple(map(whole, writes)), origin, when)


def schedule(tasks: list[Task], cmx: int) -> EntryProgram:
    """Scheduled for so much memory, and proven."""
    limits = Limits(QUEUES, {"cmx": cmx}, 16, 64, 64, {"cmx": Ways("dma.out", "dma.in")})
    program = schedule_within(TaskGraph("main", tasks), limits, ScheduleOptions())
    assert check_within(program, BarrierLimits(16, 64, 64)) == []
    return program


def steps(program: EntryProgram) -> list[str]:
    """One line a task: stage and buffers."""
    lines = []
    for task in program.tasks:
        reads, writes = (" ".join(region.buffer.name for region in side) for side in (task.reads, task.writes))
        lines.append(f"{task.origin.stage}: {reads} > {writes}".replace("  ", " "))
    return lines


def test_what_was_loaded_is_loaded_again() -> None:
    a, b = local("a"), local("b")
    program = schedule(
        [load(a), call([a], [a2 := local("a2", 64)]), load(b), call([b], [b]), call([a, a2], [a2])], 1200
    )
    assert steps(program) == [
        "load a: weights > a",
        "make a2: a > a2",
        "load b: weights > b",
        "make b: b > b",
        "reload: weights > a~back1",
        "make a2: a~back1 a2 > a2",
    ]
    assert program.spills == Spills(stores=0, loads=1, nbytes=1024)


def test_what_was_computed_is_stored_behind_its_last_write() -> None:
    a, b, c = local("a"), local("b"), local("c", 64)
    tasks = [call([], [a]), call([a], [c]), call([c], [b]), call([b], [b]), call([a], [c])]
    program = schedule(tasks, 1200)
    assert steps(program) == [
        "make a: > a",
        "spill: a > a~spilled0",
        "make c: a > c",
        "make b: c > b",
        "make b: b > b",
        "reload: a~spilled0 > a~back1",
        "make c: a~back1 > c",
    ]
    assert program.spills == Spills(stores=1, loads=1, nbytes=2048)
    assert program.peaks["ddr"] == 1024


def test_one_store_serves_all_gaps_without_a_write_between() -> None:
    a = local("a")
    tasks = [call([], [a])]
    for at in range(3):
        tasks += [call([], [other := local(f"b{at}")]), call([other], [other]), call([a], [local(f"c{at}", 64)])]
    program = schedule(tasks, 1200)
    assert program.spills == Spills(stores=1, loads=3, nbytes=4096)


def test_a_write_between_two_gaps_needs_a_second_store() -> None:
    a = local("a")
    tasks = [call([], [a])]
    for at in range(2):
        tasks += [call([], [other := local(f"b{at}")]), call([other], [other]), call([a], [a])]
    assert schedule(tasks, 1200).spills == Spills(stores=2, loads=2, nbytes=4096)


def test_the_cheapest_goes_first_then_the_furthest_use() -> None:
    computed, near, far, big = local("computed"), local("near"), local("far"), local("big")
    tasks = [call([], [computed]), load(near), load(far), call([near, far], [near_sum := local("s", 64)])]
    tasks += [call([], [big]), call([near], [near_sum]), call([far], [near_sum]), call([computed], [near_sum])]
    tasks[5:5] = [call([big], [big])]
    program = schedule(tasks, 3200)
    assert [line for line in steps(program) if "reload" in line] == ["reload: weights > far~back1"]


def test_only_what_is_missing_leaves() -> None:
    small, large, big = local("small", 256), local("large", 2048), local("big")
    tasks = [load(small), load(large), call([small, large], [s := local("s", 64)]), call([], [big]), call([big], [big])]
    tasks += [call([small, large], [s])]
    program = schedule(tasks, 256 + 2048 + 1024 + 64 - 128)
    assert program.spills == Spills(stores=0, loads=1, nbytes=256)


def test_an_accumulator_goes_on_where_it_was() -> None:
    acc, x, b = local("acc"), local("x", 64), local("b")

    def accumulate() -> Task:
        reads = (whole(x), whole(x), whole(acc))
        return Task("dpu", MmaOp(accumulate=True), reads, (whole(acc),), Origin(stage="mma"))

    program = schedule([load(x), call([], [acc]), accumulate(), call([], [b]), call([b], [b]), accumulate()], 1200)
    assert steps(program)[-3:] == [
        "make b: b > b",
        "reload: acc~spilled0 > acc~back1",
        "mma: x x acc~back1 > acc~back1",
    ]
    assert steps(program)[3] == "spill: acc > acc~spilled0"


def test_transfers_of_a_predicated_buffer_are_predicated() -> None:
    when = When("n_past", 64)
    a, b = local("a"), local("b")
    tasks = [call([], [a], when), call([], [b]), call([b], [b]), call([a], [local("c", 64)], when)]
    program = schedule(tasks, 1200)
    assert [task.when for task in program.tasks] == [when, when, None, None, when, when]
    tasks[0].when = None
    assert [task.when for task in schedule(tasks, 1200).tasks] == [None, None, None, None, None, when]


def test_loads_under_a_predicate_are_repeated_under_it() -> None:
    when = When("n_past", 64)
    a, b = local("a"), local("b")
    tasks = [load(a), load(a, STATE, when), call([a], [c := local("c", 64)]), call([], [b]), call([b], [b])]
    program = schedule([*tasks, call([a], [c])], 1200)
    again = [task for task in program.tasks if task.origin.stage == "reload"]
    assert [(task.reads[0].buffer, task.when) for task in again] == [(WEIGHTS, None), (STATE, when)]


@pytest.mark.parametrize(
    ("op", "stores"),
    [(CopyOp(), 1), (CopyOp(valid=StepValue("n_past")), 0)],
    ids=["any rows", "rows before the new ones"],
)
def test_rows_of_a_state_are_loaded_again_only_where_they_are_the_same(op: CopyOp, stores: int) -> None:
    a, b, row = local("a"), local("b"), local("row", 64)
    store = Task("dma.out", CopyOp(shift_dst="n_past"), (whole(row),), (whole(STATE, 64),), Origin(stage="append"))
    tasks = [load(row), load(a, STATE, op=op), call([a], [c := local("c", 64)]), store]
    program = schedule([*tasks, call([], [b]), call([b], [b]), call([a], [c])], 1200)
    assert program.spills.stores == stores
    assert program.spills.loads == 1


def test_a_buffer_without_a_gap_is_no_candidate() -> None:
    a, b = local("a"), local("b")
    with pytest.raises(OverflowRefused, match="2 buffers live at task 1 need 2048 B, there are 1200 B"):
        schedule([load(a), call([a], [b]), call([a, b], [b])], 1200)


def test_a_memory_without_a_way_to_ddr_refuses_as_before() -> None:
    a, b = local("a"), local("b")
    tasks = [load(a), load(b), call([b], [b]), call([a], [a])]
    limits = Limits(QUEUES, {"cmx": 1200}, 16, 64, 64)
    with pytest.raises(OverflowRefused, match="cmx overflows"):
        schedule_within(TaskGraph("main", tasks), limits, ScheduleOptions())


def test_the_graph_given_is_not_changed() -> None:
    a, b = local("a"), local("b")
    tasks = [load(a), load(b), call([b], [b]), call([a], [a])]
    before = [(task, task.reads, task.writes) for task in tasks]
    schedule(tasks, 1200)
    assert [(task, task.reads, task.writes) for task in tasks] == before
