"""Periods: how they are found, what the short graph is, and the named reasons not to stamp."""

from __future__ import annotations

from npuc.check import BarrierLimits, check_within
from npuc.schedule import Limits, ScheduleOptions, schedule_within
from npuc.schedule.limits import Ways
from npuc.schedule.period import Period, find_period
from npuc.schedule.shorten import shorten
from npuc.tasks.graph import Buffer, CallOp, CopyOp, Region, Role, Task, TaskGraph
from npuc.tasks.program import Effort, EntryProgram
from npurt.abi.dtypes import DType

QUEUES = {queue: queue for queue in ("dma.in", "dma.out", "dpu", "shave")}
OUT = Buffer("out", "ddr", 1024, Role.OUTPUT)


def whole(buffer: Buffer) -> Region:
    return Region(buffer, 0, DType.I8, (buffer.nbytes,), (1,))


def load(buffer: Buffer) -> Task:
    source = Buffer(f"w.{buffer.name}", "ddr", buffer.nbytes, Role.CONST)
    return Task("dma.in", CopyOp(), (whole(source),), (whole(buffer),))


def call(engine: str, reads: list[Buffer], writes: list[Buffer]) -> Task:
    return Task(engine, CallOp("f", b"", ()), tuple(map(whole, reads)), tuple(map(whole, writes)))


def store(buffer: Buffer) -> Task:
    return Task("dma.out", CopyOp(), (whole(buffer),), (whole(OUT),))


def layer(at: int, x: Buffer, width: int = 64) -> tuple[list[Task], Buffer]:
    """Six tasks: weights in, a product, a second one, their sum with the stream of values."""
    names = ("w", "h", "v", "g")
    w, h, v, g = (Buffer(f"{name}{at}", "cmx", 16 * width) for name in names)
    after = Buffer(f"x{at + 1}", "cmx", 1024)
    tasks = [load(w), call("dpu", [x, w], [h]), load(v), call("dpu", [h, v], [g]), call("shave", [g], [g])]
    return [*tasks, call("shave", [x, g], [after])], after


def layers(count: int, width: int = 64) -> TaskGraph:
    x = Buffer("x0", "cmx", 1024)
    graph = TaskGraph("main", [load(x)])
    for at in range(count):
        tasks, x = layer(at, x, width)
        graph.tasks += tasks
    graph.tasks.append(store(x))
    return graph


def schedule(graph: TaskGraph, cmx: int = 1 << 16, prefetch: int = 2) -> EntryProgram:
    """Scheduled and proven."""
    limits = Limits(QUEUES, {"cmx": cmx}, 16, 64, 64, {"cmx": Ways("dma.out", "dma.in")})
    program = schedule_within(graph, limits, ScheduleOptions(prefetch, 1))
    assert check_within(program, BarrierLimits(16, 64, 64)) == []
    return program


def test_the_period_is_one_layer_and_starts_where_layers_become_alike() -> None:
    """The first product's stream of values was loaded, that of all others is a sum."""
    assert find_period(layers(12), 3) == Period(start=3, length=6, count=11)


def test_layers_of_two_kinds_in_turn_are_one_period() -> None:
    x = Buffer("x0", "cmx", 1024)
    graph = TaskGraph("main", [load(x)])
    for at in range(12):
        tasks, x = layer(at, x, 64 if at % 2 else 32)
        graph.tasks += tasks
    found = find_period(graph, 3)
    assert found is not None
    assert (found.length, found.count) == (12, 5)


def test_weights_may_be_shared_or_not() -> None:
    graph = layers(12)
    shared = Buffer("shared", "ddr", 1024, Role.CONST)
    for task in graph.tasks[1::18]:
        task.reads = (whole(shared), *task.reads[1:])
    assert find_period(graph, 3) == Period(start=3, length=6, count=11)


def test_too_few_layers_are_no_period() -> None:
    assert find_period(layers(4), 3) is None


def test_the_short_graph_ends_on_the_buffers_of_its_last_stretch() -> None:
    graph = layers(12)
    short = shorten(graph, Period(3, 6, 11), kept=3, model=2)
    assert short is not None
    assert len(short.graph.tasks) == len(graph.tasks) - 8 * 6
    assert [region.buffer.name for region in short.graph.tasks[22].reads] == ["h3", "v11"]
    assert [region.buffer.name for region in short.graph.tasks[24].reads] == ["x3", "g11"]
    assert [short.likeness(task) for task in (0, 14, 15, 21, 27, 68, 69, 73)] == [0, 14, 15, 15, 15, 20, 21, 25]
    assert [region.buffer.name for region in graph.tasks[72].reads] == ["x11", "g11"]


def test_equal_layers_are_scheduled_once() -> None:
    """Odd numbers: two layers in turn are one period here, and as many are left over each time."""
    programs = [schedule(layers(count)) for count in (13, 25, 97)]
    assert len({program.effort.scheduled for program in programs}) == 1
    assert [program.effort.stamped for program in programs] == [
        len(program.tasks) - programs[0].effort.scheduled for program in programs
    ]
    assert len({program.cmx_peak for program in programs}) == 1


def test_what_all_layers_leave_for_the_end_is_not_stamped() -> None:
    graph = layers(12)
    kept = [task.writes[0].buffer for task in graph.tasks[6::6]]
    graph.tasks += [store(buffer) for buffer in kept]
    program = schedule(graph)
    assert program.effort == Effort(len(graph.tasks), 0, 11, "buffers of several periods are used behind the last")


def test_layers_that_must_be_spilled_are_stamped_with_their_transfers() -> None:
    """x waits for its sum while four buffers of a layer need the room."""
    program = schedule(layers(16), cmx=3 * 1024, prefetch=0)
    assert program.spills.stores + program.spills.loads > 12
    assert program.effort.stamped > 0
