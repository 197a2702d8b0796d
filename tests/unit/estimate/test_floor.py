"""The bound with formats and experts: where there are neither, it is npuc.bound's own."""

from __future__ import annotations

import pytest

from npuc.bound import bound_of
from npuc.estimate.analytic import run
from npuc.estimate.floor import Floor
from npuc.estimate.formats import FORMATS
from npuc.estimate.subject import Subject
from npurt.abi.dtypes import DType
from npurt.target import load_target, target_names

TARGETS = [load_target(name) for name in target_names()]
HELD = pytest.mark.parametrize("held", [True, False], ids=["held", "overlapped"])


@HELD
def test_as_floats_it_is_the_bound(tiny: Subject, held: bool):
    for plan in tiny.plans.values():
        floor = Floor(plan)
        for target in TARGETS:
            for past in {0, plan.graph.capacity}:
                found = floor.bound(target, FORMATS["f16"], past, held)
                assert found == bound_of(plan.graph, target, floats=DType.F16, n_past=past, held=held)


@HELD
def test_no_estimate_is_below_its_bound(tiny: Subject, mixed: Subject, held: bool):
    for plan in (*tiny.plans.values(), *mixed.plans.values()):
        floor = Floor(plan)
        for target in TARGETS:
            for form in FORMATS.values():
                found = run(plan, target, form, plan.graph.capacity, held)
                bound = floor.bound(target, form, plan.graph.capacity, held)
                assert found.seconds >= 0.98 * bound.seconds, (plan.graph.label, target.name, form.name)


def test_codes_move_the_bytes_of_codes(tiny: Subject):
    plan = tiny.plan("generate")
    floor, npu = Floor(plan), load_target()
    loads = {name: floor.bound(npu, FORMATS[name], 0, True).loaded for name in ("f16", "int8", "int4")}
    channels = 2 * (32 + 2 * 16 + 32 + 2 * 48 + 32)
    numbers = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48)
    assert loads["f16"] - loads["int8"] == numbers - 8 * channels
    assert loads["int8"] - loads["int4"] == numbers // 2
    found = {name: run(plan, npu, FORMATS[name], 0, True).loaded for name in loads}
    assert found == loads


def test_experts_that_are_not_chosen_cost_nothing(mixed: Subject):
    npu, plan = load_target(), mixed.plan("generate")
    one = 2 * 3 * 32 * 24  # bytes of an expert
    dense = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 32 * 16)  # of a layer's other matrices
    estimate = run(plan, npu, FORMATS["f16"], 0, True)
    assert sum(cost.weights for cost in estimate.costs) == 2 * (dense + 2 * one)
    (*_, cost) = [cost for cost in estimate.costs if cost.weights == 2 * one]
    assert cost.macs == 2 * 3 * 32 * 24
    loads = {name: Floor(plan).bound(npu, FORMATS[name], 0, True).loaded for name in ("f16", "int8")}
    assert loads["f16"] <= estimate.loaded
    channels = 2 * (32 + 2 * 16 + 32 + 16) + 2 * 2 * (2 * 24 + 32)
    assert loads["f16"] - loads["int8"] == dense + 2 * one - 8 * channels
