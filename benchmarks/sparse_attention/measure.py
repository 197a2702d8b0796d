"""How well the cube is used: simulated for a few queries, extended to many."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.sparse_attention.branch import Taken, executed
from benchmarks.sparse_attention.flags import flagged
from benchmarks.sparse_attention.generate import generate
from benchmarks.sparse_attention.problem import Problem
from npuc.tasks.cost import program_job
from npuc.tasks.graph import Task
from npuc.tasks.program import EntryProgram
from npurt.target import Target
from npurt.timing import PS, Job, Times, simulate

QUERIES = 128
"""Queries of one core in a prefill."""
SEED = 950
Change = Callable[[EntryProgram, Job], Job]


@dataclass(frozen=True)
class Run:
    """One simulated run. cycles: of the cube's clock, from the start to the end of all; ends: of each query's sums."""

    problem: Problem
    program: EntryProgram
    job: Job
    times: Times
    cycles: float
    ends: tuple[float, ...]

    def use(self, target: Target, queries: int) -> float:
        """Share of the cube's peak for so many queries: those between the first and the last take equal time."""
        rate = target.engine_of("matrix").macs_per_cycle["bf16"]
        count = self.problem.queries
        total = self.cycles
        if queries != count:
            total += (queries - count) * (self.ends[-2] - self.ends[0]) / (count - 2)
        return self.problem.macs / count * queries / rate / total


class Bench:
    """Runs on one machine and on changed ones of the same memories; each list is laid out once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._programs: dict[tuple[Problem, float], EntryProgram] = {}

    def program(self, problem: Problem, rescale: float = 0.0) -> EntryProgram:
        """The tasks that act where a share of the blocks rescales."""
        key = problem, rescale
        if key not in self._programs:
            acts = executed(generate(problem, self.target), _taken(problem, rescale))
            self._programs[key] = flagged(acts, self.target)
        return self._programs[key]

    def run(
        self, problem: Problem, target: Target | None = None, *, rescale: float = 0.0, change: Change | None = None
    ) -> Run:
        """rescale: share of the blocks that ask for sums to be scaled, drawn at random. change: of the priced tasks."""
        machine, program = target or self.target, self.program(problem, rescale)
        job = program_job(program, machine)
        if change is not None:
            job = change(program, job)
        times = simulate(job, held=False)
        cycle = PS / machine.engine_of("matrix").clock
        ends = [0.0] * problem.queries
        for at, task in enumerate(program.tasks):
            if task.origin.stage.startswith("sv"):
                ends[block_of(task) // problem.blocks] = int(times.end[at]) / cycle
        return Run(problem, program, job, times, times.makespan / cycle, tuple(ends))


def block_of(task: Task) -> int:
    """The block of a task, of those stages that know one; those of a vector unit say their unit first."""
    return task.origin.coord[1 if "." in task.engine else 0]


def _taken(problem: Problem, rescale: float) -> Taken:
    """What the flags of the tasks say: that a share of all blocks, drawn at random, asks for sums to be scaled. A
    query's first block never does."""
    able = np.flatnonzero(np.arange(problem.queries * problem.blocks) % problem.blocks)
    wanted = min(round(rescale * problem.queries * problem.blocks), len(able))
    fires = np.zeros((problem.queries, problem.blocks), np.bool_)
    fires.ravel()[np.random.default_rng(SEED).permutation(able)[:wanted]] = True
    blocks, queries = fires.ravel().tolist(), [bool(row.any()) for row in fires]

    def taken(task: Task) -> bool:
        at = block_of(task)
        return queries[at] if task.origin.stage.startswith("final") else blocks[at]

    return taken


def priced(cycles: Mapping[str, float], target: Target, *, row_bytes: int | None = None) -> Change:
    """Gives the tasks of these stages so many cycles of work, whatever their programs cost. row_bytes: of a gathered
    row, None where it is what the list says."""
    cycle = PS / target.engine_of("vector").clock

    def change(program: EntryProgram, job: Job) -> Job:
        work = job.costs.work.copy()
        for at, task in enumerate(program.tasks):
            stage = task.origin.stage
            if stage in cycles and work[at]:
                work[at] = round(cycles[stage] * cycle)
            if stage == "gather" and row_bytes is not None:
                region = task.writes[0]
                work[at] = work[at] * row_bytes * region.shape[0] // region.nbytes
        return replace(job, costs=replace(job.costs, work=work))

    return change
