"""Random jobs: times are whole, repeat, respect every order, and never grow when a cost falls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npurt.timing import Job, Times, simulate
from tests.unit.timing.jobs import Step, job


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    found: list[Step] = []
    for at in range(draw(st.integers(1, 16))):
        after = draw(st.lists(st.integers(0, at - 1), max_size=2, unique=True)) if at else []
        queue = draw(st.integers(0, 2))
        cost = st.integers(0, 50)
        found.append(Step(queue, draw(cost), draw(cost) * (queue == 0), draw(cost), tuple(sorted(after))))
    return found


@given(steps(), st.booleans(), st.integers(1, 4), st.integers(0, 9))
def test_order_and_sums(chosen: list[Step], held: bool, outstanding: int, flag: int) -> None:
    given_job = job(chosen, outstanding=outstanding, flag=flag)
    times = simulate(given_job, held=held)
    for at, step in enumerate(chosen):
        assert all(times.start[at] >= times.end[producer] + flag for producer in step.after)
        assert times.end[at] - times.start[at] == step.setup + step.work + step.latency
    for queue in range(3):
        mine = given_job.queue == queue
        busy = int((times.release - times.start)[mine].sum())
        last = int(times.release[mine].max(initial=0))
        assert busy + int(times.stall[mine].sum()) == last <= times.makespan
    again = simulate(given_job, held=held)
    assert all(np.array_equal(getattr(times, name), getattr(again, name)) for name in Times.__dataclass_fields__)


@given(steps(), st.booleans(), st.sampled_from(["setup", "latency", "work"]), st.integers(1, 5))
def test_a_lower_cost_never_slows(chosen: list[Step], held: bool, column: str, ids: int) -> None:
    slow = job(chosen, ids=100)
    fast: Job = replace(slow, costs=replace(slow.costs, **{column: getattr(slow.costs, column) // 2}))
    assert (simulate(fast, held=held).end <= simulate(slow, held=held).end).all()
    assert (simulate(slow, held=False).end <= simulate(replace(slow, flag_latency=ids), held=False).end).all()
