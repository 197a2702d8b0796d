"""Random graphs of equal layers: the same tasks again and again on buffers, weights and states of their own."""

from __future__ import annotations

import random

from npuc.tasks.graph import Buffer, CopyOp, MmaOp, Origin, Region, Role, StepValue, Task, TaskGraph
from tests.property.schedule.schedule_model import STATE_ROW, STATE_ROWS, view, whole


def layered_graph(seed: int, layers: int) -> TaskGraph:
    """`layers` layers of 10 to 60 tasks: each reads the stream of values that the one before it wrote, appends to a
    state and reads it, and uses a table that was loaded once in front of all.
    """
    rng = random.Random(seed)
    plan = [
        (rng.random(), rng.random(), rng.random(), rng.choice([64, 96, 256, 512])) for _ in range(rng.randint(6, 30))
    ]
    source, target = Buffer("source", "ddr", 512, Role.INPUT), Buffer("target", "ddr", 512, Role.OUTPUT)
    table, stream = Buffer("table", "cmx", 128), Buffer("x0", "cmx", 256)
    tasks = [_load(source, table), _load(source, stream)]
    for layer in range(layers):
        stream = _layer(tasks, plan, layer, stream, table)
    tasks.append(Task("dma.out", CopyOp(), (whole(stream),), (view(target, 0, (256,), (1,)),)))
    for index, task in enumerate(tasks):
        task.origin = Origin(coord=(index,))
    return TaskGraph("main", tasks)


def _load(source: Buffer, buffer: Buffer) -> Task:
    return Task("dma.in", CopyOp(), (view(source, 0, (buffer.nbytes,), (1,)),), (whole(buffer),))


def _layer(
    tasks: list[Task], plan: list[tuple[float, float, float, int]], layer: int, stream: Buffer, table: Buffer
) -> Buffer:
    """Adds the tasks of one layer; returns the buffer with what it computes."""
    state = Buffer(f"state{layer}", "ddr", STATE_ROWS * STATE_ROW, Role.STATE)
    weights = Buffer(f"w{layer}", "ddr", 512, Role.CONST)
    past = Buffer(f"past{layer}", "cmx", 4 * STATE_ROW)
    read = view(state, 4 * STATE_ROW, (4, STATE_ROW), (STATE_ROW, 1))
    tasks.append(Task("dma.in", CopyOp(valid=StepValue("n_past", -4)), (read,), (whole(past),)))
    live = [stream, table, past]
    for step, (kind, first, second, size) in enumerate(plan):
        a, b = live[int(first * len(live))], live[int(second * len(live))]
        if kind < 0.5:
            fresh = Buffer(f"l{layer}.{step}", "cmx" if kind < 0.4 else "ddr", size)
            tasks.append(
                _load(weights, fresh) if first < 0.5 else _call("dpu" if second < 0.5 else "shave", a, b, fresh)
            )
            live = [*live[:3], *live[3:][-3:], fresh]
        elif kind < 0.6:
            row = view(state, 0, (2, STATE_ROW), (STATE_ROW, 1))
            tasks.append(Task("dma.out", CopyOp(shift_dst="n_past"), (view(a, 0, (64,), (1,)),), (row,)))
        elif b not in (stream, table):
            tasks.append(_call("dpu" if first < 0.5 else "shave", a, b, b))
    after = Buffer(f"x{layer + 1}", "cmx", 256)
    tasks.append(_call("dpu", stream, live[-1], after))
    return after


def _call(engine: str, a: Buffer, b: Buffer, out: Buffer) -> Task:
    reads: tuple[Region, ...] = (whole(a), whole(b))
    return Task(engine, MmaOp(accumulate=out is b), reads, (whole(out),))
