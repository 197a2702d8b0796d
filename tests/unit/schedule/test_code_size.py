"""Vector programs that an engine cannot hold are refused, all in one message."""

from __future__ import annotations

import pytest

from npuc.schedule import schedule
from npuc.schedule.errors import CodeRefused
from npuc.tasks.graph import Buffer, CallOp, Origin, Region, Task, TaskGraph
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder
from npurt.target import load_target

TILE = Region(Buffer("tile", "ub", 64), 0, DType.F16, (32,), (2,))


def negations(count: int) -> bytes:
    """A program of count + 2 instructions."""
    b = ProgramBuilder()
    value = b.load(b.arg(ArgMode.IN, DType.F16, (32,)))
    for _ in range(count):
        value = b.op(Op.NEG, value)
    b.store(b.arg(ArgMode.OUT, DType.F16, (32,)), value)
    return b.bytes()


def graph(engine: str, *programs: tuple[str, bytes]) -> TaskGraph:
    call = [
        Task(engine, CallOp(name, code, (("r", 0), ("w", 0))), (TILE,), (TILE,), Origin("main", "/layer", name))
        for name, code in programs
    ]
    return TaskGraph("main", call)


def test_what_fits_is_scheduled() -> None:
    code = negations(200)
    assert len(code) == 32 + 2 * 64 + 201 * 20 + 202 * 16 <= 8192
    assert schedule(graph("vector.1", ("small", code)), load_target("ascend950")).tasks


def test_every_program_that_is_too_large_is_named_once() -> None:
    large, larger = negations(230), negations(300)
    tasks = graph("vector.1", ("a", large), ("b", larger), ("a", large))
    with pytest.raises(CodeRefused) as caught:
        schedule(tasks, load_target("ascend950"))
    hint = "unroll less in one run (fewer turns of t.range, or t.end_run() between)"
    assert str(caught.value) == (
        f"entry main: task 0 (/layer, a): program a has 8492 bytes, vector.1 holds 8192; {hint}\n"
        f"entry main: task 1 (/layer, b): program b has 11012 bytes, vector.1 holds 8192; {hint}"
    )


def test_a_machine_without_a_limit_takes_it() -> None:
    large = graph("shave", ("a", negations(300)))
    tile = Region(Buffer("tile", "cmx", 64), 0, DType.F16, (32,), (2,))
    tasks = [Task(task.engine, task.op, (tile,), (tile,), task.origin) for task in large.tasks]
    assert schedule(TaskGraph("main", tasks), load_target("npu40xx")).tasks
