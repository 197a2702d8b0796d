"""Random task graphs: the schedule is proven by the checker, and every order the device may choose gives the same
values.
"""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npuc.check import BarrierLimits, check_within
from npuc.schedule import OverflowRefused, ScheduleOptions, schedule_within
from tests.property.schedule.schedule_model import (
    QUEUES,
    favouring,
    in_trace_order,
    limits,
    on_device,
    random_graph,
    randomly,
)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    tasks=st.integers(1, 80),
    barriers=st.sampled_from([4, 5, 8, 16]),
    cmx=st.sampled_from([2048, 4096, 1 << 16]),
    prefetch=st.sampled_from([0, 3, 16]),
    n_past=st.sampled_from([0, 5, 16]),
)
def test_any_order_computes_what_trace_order_computes(
    seed: int, tasks: int, barriers: int, cmx: int, prefetch: int, n_past: int
) -> None:
    graph = random_graph(seed, tasks)
    try:
        program = schedule_within(graph, limits(cmx, barriers), ScheduleOptions(prefetch))
    except OverflowRefused as refused:
        assert refused.needed > cmx * 0.5, "memory is given up far below its size"
        return
    assert check_within(program, BarrierLimits(barriers, 64, 64)) == []
    expected = in_trace_order(graph, n_past)
    for choose in (randomly(seed), randomly(seed + 1), *(favouring(queue) for queue in QUEUES)):
        assert on_device(program, n_past, choose) == expected


@pytest.mark.parametrize("seed", range(3))
def test_a_long_graph_with_few_barriers(seed: int) -> None:
    graph = random_graph(seed, 600)
    program = schedule_within(graph, limits(8192, 4), ScheduleOptions())
    assert check_within(program, BarrierLimits(4, 64, 64)) == []
    assert on_device(program, 7, randomly(seed)) == in_trace_order(graph, 7)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), tasks=st.integers(20, 160), cmx=st.sampled_from([1280, 1536, 1792]))
def test_spilling_changes_no_value(seed: int, tasks: int, cmx: int) -> None:
    """Three buffers of 512 bytes is what one task may touch, six such live at the same time."""
    graph = random_graph(seed, tasks)
    try:
        program = schedule_within(graph, limits(cmx), ScheduleOptions())
    except OverflowRefused:
        assume(False)
    assert check_within(program, BarrierLimits(16, 64, 64)) == []
    expected = in_trace_order(graph, 5)
    for choose in (randomly(seed), *(favouring(queue) for queue in QUEUES)):
        assert on_device(program, 5, choose) == expected


def test_random_graphs_that_do_not_fit_are_spilled() -> None:
    """The property above would say nothing if all were refused or none spilled."""
    spilled = 0
    for seed in range(20):
        spilled += schedule_within(random_graph(seed, 160), limits(1792), ScheduleOptions()).spills.stores > 0
    assert spilled > 5
