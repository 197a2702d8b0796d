"""The timing machine on jobs whose times are known by hand."""

from dataclasses import replace

import numpy as np
import pytest

from npurt.errors import DeadlockError
from npurt.timing import Issue, Shared, Stall, Times, simulate
from tests.unit.timing.jobs import Step, job


def starts(times: Times) -> list[int]:
    return [int(time) for time in times.start]


def test_one_queue_runs_one_task_after_the_other():
    times = simulate(job([Step(0, 10, setup=1), Step(0, 20, setup=2), Step(0, 30)]), held=True)
    assert starts(times) == [0, 11, 33]
    assert times.makespan == 63
    assert times.stall.tolist() == [0, 0, 0]


def test_a_held_latency_keeps_the_port_and_an_overlapped_one_does_not():
    loads = [Step(0, 10, latency=100) for _ in range(3)]
    held = simulate(job(loads), held=True)
    assert (starts(held), held.makespan) == ([0, 110, 220], 330)
    over = simulate(job(loads, outstanding=3), held=False)
    assert (starts(over), over.makespan) == ([0, 10, 20], 130)
    assert over.release.tolist() == [10, 20, 30]


def test_no_more_transfers_are_in_flight_than_the_engine_can_have():
    times = simulate(job([Step(0, 10, latency=100) for _ in range(4)], outstanding=2), held=False)
    # the third begins when the first has ended, at 110
    assert starts(times) == [0, 10, 110, 120]
    assert times.reason.tolist() == [Stall.NONE, Stall.NONE, Stall.OUTSTANDING, Stall.NONE]
    assert int(times.cause[2]) == 0


def test_a_barrier_lets_the_other_queue_wait_for_the_end_and_the_flag():
    steps = [Step(0, 10, latency=5), Step(1, 7, after=(0,)), Step(2, 1, after=(1,))]
    times = simulate(job(steps, flag=3), held=False)
    assert starts(times) == [0, 18, 28]
    assert times.stall.tolist() == [0, 18, 28]
    assert times.reason.tolist() == [Stall.NONE, Stall.WAIT, Stall.WAIT]
    assert times.cause.tolist() == [-1, 0, 1]


def test_a_row_of_the_table_waits_for_its_physical_id():
    # task 1 uses the one id again: it can begin when task 2, which waits for task 0, has begun at 10
    steps = [Step(0, 10), Step(1, 10), Step(2, 5, after=(0,)), Step(2, 5, after=(1,))]
    times = simulate(job(steps, ids=1), held=True)
    assert starts(times) == [0, 10, 10, 20]
    assert Stall(int(times.reason[1])) is Stall.BARRIER
    assert (int(times.cause[1]), bool(times.at_start[1])) == (2, True)
    assert starts(simulate(job(steps, ids=2), held=True)) == [0, 0, 10, 15]


def test_transfers_that_want_more_than_the_pool_has_share_it():
    # each alone would take 100; together each has half, until the shorter one has ended at 80
    steps = [Step(0, 100, rate=10), Step(1, 40, rate=10)]
    times = simulate(job(steps, pool=10), held=True)
    assert times.end.tolist() == [140, 80]
    alone = simulate(job(steps, pool=20), held=True)
    assert alone.end.tolist() == [100, 40]


def test_the_time_that_others_cost_is_named_by_what_they_share():
    """Two transfers over one way of 10, and inside one bank of 5: each takes 4 times as long, because of the bank."""
    shared = job([Step(0, 100, rate=10), Step(1, 100, rate=10)], pool=10)
    assert simulate(shared, held=True).bandwidth.tolist() == [100, 100]
    costs = replace(shared.costs, pools=np.array([[0, 1], [0, 1]]))
    both = replace(shared, costs=costs, pools=(Shared(10), Shared(5, bank=True)))
    times = simulate(both, held=True)
    assert (times.end.tolist(), times.bank.tolist(), times.bandwidth.tolist()) == ([400, 400], [300, 300], [0, 0])


def test_a_scalar_unit_issues_in_order_and_stands_still_for_its_own_task():
    # queue 2 is the unit's own: its task 2 waits for task 0, and task 3 is issued behind it
    steps = [Step(0, 100), Step(1, 10), Step(2, 5, after=(0,)), Step(1, 10)]
    plain = job(steps)
    issued = replace(plain, issue=Issue(np.zeros(4, np.int64), (2,), 6))
    times = simulate(issued, held=True)
    assert starts(times) == [6, 12, 106, 117]
    assert Stall(int(times.reason[3])) is Stall.ISSUE
    assert (int(times.cause[3]), int(times.issued[3])) == (2, 6)
    # without a queue of its own it runs ahead of the engines
    free = replace(issued, issue=Issue(np.zeros(4, np.int64), (-1,), 6))
    assert starts(simulate(free, held=True)) == [6, 12, 106, 24]


def test_a_job_that_cannot_end_is_named():
    steps = [Step(0, 1, after=(1,)), Step(1, 1, after=(0,))]
    with pytest.raises(DeadlockError, match=r"^no queue can go on: q0 task 0, q1 task 1$"):
        simulate(job(steps), held=True)


def test_no_task_takes_no_time():
    assert simulate(job([]), held=True).makespan == 0
