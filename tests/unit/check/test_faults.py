"""Every fault that is put into a good program is found, and by the rule that it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.check import check, require
from npuc.schedule import EntryProgram, ScheduleOptions, schedule
from npuc.tasks.text import parse_tasks
from npurt.target import load_target
from tests.unit.check.faults import FAULTS, Fault

TARGET = load_target("npu40xx")
LIST = Path(__file__).parents[2] / "data" / "tasks" / "flash_npu40xx.tasks"
PLACES = (0, 4, 9, 17)


@pytest.fixture(scope="module")
def program() -> EntryProgram:
    return schedule(parse_tasks(LIST.read_text()), TARGET, ScheduleOptions(prefetch=8))


def test_the_good_program_passes(program: EntryProgram) -> None:
    assert check(program, TARGET) == []
    require(program, TARGET)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_each_fault_is_found(program: EntryProgram, fault: Fault, place: int) -> None:
    broken, rules = fault(program, place)
    assert broken != program
    found = {finding.rule for finding in check(broken, TARGET)}
    assert found & rules, f"found {sorted(found)}, one of {sorted(rules)} is due"


def test_there_are_enough_different_faults(program: EntryProgram) -> None:
    broken: list[EntryProgram] = []
    for fault in FAULTS:
        for place in PLACES:
            candidate = fault(program, place)[0]
            if candidate not in broken:
                broken.append(candidate)
    assert len(broken) >= 50
