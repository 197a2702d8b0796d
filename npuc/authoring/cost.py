"""Cycles of one kernel on a target, by engine, from its own schedule and the machine model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.authoring.program import kernel_program, roles_of
from npuc.schedule import EntryProgram
from npuc.tasks.cost import program_job
from npuc.tile import Example, Kernel, TraceCache
from npurt.target import Target
from npurt.timing import PS, Job, Times, simulate


@dataclass(frozen=True)
class QueueCost:
    """One queue: how many tasks, how long it works, and how many cycles of its engine's clock that is."""

    name: str
    tasks: int
    seconds: float
    cycles: float


@dataclass(frozen=True)
class KernelCost:
    """seconds: the makespan. ddr_bytes: that cross. peak: on-chip bytes. assumed: keys of the target's numbers that the
    cost rests on and that are assumed."""

    kernel: str
    params: Mapping[str, Any]
    target: str
    seconds: float
    queues: tuple[QueueCost, ...]
    ddr_bytes: int
    peak: int
    tasks: int
    assumed: tuple[str, ...]


def cost_of(
    kernel: Kernel, example: Example, target: Target, params: Mapping[str, Any] | None = None,
    cache: TraceCache | None = None,
) -> KernelCost:  # fmt: skip
    """The cost of an example; its on-chip arrays are there already.

    params: instead of the example's. Errors: KernelError, those of the scheduler.
    """
    chosen = dict(example.params) if params is None else dict(params)
    program = _program(kernel, example, target, chosen, cache)
    job, times = _run(program, example, target)
    return KernelCost(
        kernel.name, chosen, target.name, times.makespan / PS, tuple(_queues(program, job, times, target)),
        program.ddr_bytes, program.cmx_peak, len(program.tasks), _assumed(program, target),
    )  # fmt: skip


def timed(kernel: Kernel, example: Example, target: Target, cache: TraceCache | None = None) -> tuple[Job, Times]:
    """The run behind `cost_of`: when each task of an example has its queue."""
    return _run(_program(kernel, example, target, dict(example.params), cache), example, target)


def _program(
    kernel: Kernel, example: Example, target: Target, params: Mapping[str, Any], cache: TraceCache | None
) -> EntryProgram:
    trace = kernel.trace(example.types, params, cache=cache)
    return kernel_program(trace, roles_of(kernel, trace, params), target, example.step, bring=False)


def _run(program: EntryProgram, example: Example, target: Target) -> tuple[Job, Times]:
    job = program_job(program, target, {"n_past": program.capacity, "n_new": program.rows, **example.step})
    return job, simulate(job, held=True)  # the reading that every figure has by default


def _queues(program: EntryProgram, job: Job, times: Times, target: Target) -> list[QueueCost]:
    rows = []
    engine = dict(zip(program.queues, (task.engine for task in program.tasks), strict=True))
    for number, name in enumerate(job.queues):
        mine = job.queue == number
        seconds = float((times.release - times.start)[mine].sum()) / PS
        clock = target.engines[engine[name]].clock
        rows.append(QueueCost(name, int(np.count_nonzero(mine)), seconds, seconds * clock))
    return rows


def _assumed(program: EntryProgram, target: Target) -> tuple[str, ...]:
    engines = dict.fromkeys(task.engine for task in program.tasks)
    return target.assumed([*(f"engines.{name}" for name in engines), "routes", "sync"])
