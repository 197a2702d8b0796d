"""Random equal layers: what is stamped is proven by the checker and computes the same in every order."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from npuc.check import BarrierLimits, check_within
from npuc.schedule import OverflowRefused, ScheduleOptions, schedule_within
from tests.property.schedule.layered import layered_graph
from tests.property.schedule.schedule_model import favouring, in_trace_order, limits, on_device, randomly


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    layers=st.integers(2, 12),
    barriers=st.sampled_from([4, 16]),
    cmx=st.sampled_from([1536, 2048, 4096, 1 << 16]),
    prefetch=st.sampled_from([0, 3, 16]),
)
def test_stamped_layers_compute_what_trace_order_computes(
    seed: int, layers: int, barriers: int, cmx: int, prefetch: int
) -> None:
    graph = layered_graph(seed, layers)
    try:
        program = schedule_within(graph, limits(cmx, barriers), ScheduleOptions(prefetch))
    except OverflowRefused:
        assume(False)
    assert check_within(program, BarrierLimits(barriers, 64, 64)) == []
    assert program.effort.scheduled + program.effort.stamped == len(program.tasks)
    expected = in_trace_order(graph, 7)
    for choose in (randomly(seed), favouring("dma.in"), favouring("shave")):
        assert on_device(program, 7, choose) == expected


@pytest.mark.parametrize("cmx", [4096, 1 << 16])
def test_most_layered_graphs_are_stamped(cmx: int) -> None:
    """The effort does not grow with the layers, and the property above is about stamped programs.

    With 12 and 24 layers behind the first, none is left over where two, three or four of them are one period.
    """
    stamped = 0
    for seed in range(20):
        few, many = (
            schedule_within(layered_graph(seed, layers), limits(cmx), ScheduleOptions()) for layers in (13, 25)
        )
        if few.effort.stamped:
            stamped += 1
            assert few.effort.scheduled == many.effort.scheduled
            assert few.peaks == many.peaks
    assert stamped >= 15
