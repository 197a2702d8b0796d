"""Times of programs that are not blobs: the same as the blob's, and those of a machine of another kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import npurt
from npuc.driver import CompileOptions, compile_model
from npuc.emit import write_blob
from npuc.schedule import EntryProgram, Limits, ScheduleOptions, schedule_within
from npuc.tasks.cost import program_job
from npuc.tasks.text import parse_tasks
from npurt.target import load_target, scaled
from npurt.timing import EntryTimer, simulate
from tests.support.models import CORPUS

MODEL = CORPUS / "llama-torchdyn-op18" / "model.onnx"
SPARSE = Path(__file__).parents[2] / "data" / "tasks" / "sparse_gather_ascend950.tasks"
NPU, ASCEND = load_target(), load_target("ascend950")


def test_a_program_takes_as_long_as_its_blob(tmp_path: Path):
    compiled = compile_model(MODEL, CompileOptions(max_prompt_len=32, chunk=16))
    assert compiled is not None
    write_blob(compiled.programs, compiled.states, compiled.metadata, compiled.assets, tmp_path / "m.npu")
    image = npurt.load(tmp_path / "m.npu")
    for program in compiled.programs:
        entry = image.entries[program.entry]
        step = {"n_past": entry.max_past, "n_new": program.rows}
        for held in (True, False):
            times = simulate(program_job(program, NPU, step), held=held)
            assert times.makespan == EntryTimer(image, entry, NPU).run(held=held).makespan


@pytest.fixture(scope="module")
def sparse() -> EntryProgram:
    """Flags of this machine join one setter and one waiter; the scheduler's barriers stand for sets of them."""
    limits = Limits(ASCEND.queues, ASCEND.on_chip, 64, 64, 64)
    return schedule_within(parse_tasks(SPARSE.read_text()), limits, ScheduleOptions())


def busy(program: EntryProgram, queue: str, taken: bool) -> int:
    job = program_job(program, ASCEND, taken=taken)
    times = simulate(job, held=False)
    mine = job.queue == job.queues.index(queue)
    return int((times.release - times.start)[mine].sum())


def test_the_cubes_work_on_the_other_machine(sparse: EntryProgram):
    """4 blocks of 64 keys: 1,024 cycles each for 64 heads and 512 channels, and the start-up of 8 steps each. The
    scalar unit issues beside it, and a product whose flag says no costs nothing."""
    assert busy(sparse, "m", False) == pytest.approx(4 * (1024 + 8 * 6) / 1650e6 * 1e12, rel=1e-4)


def test_rescaling_costs_time(sparse: EntryProgram):
    quiet, rescaled = (simulate(program_job(sparse, ASCEND, taken=taken), held=False) for taken in (False, True))
    assert quiet.makespan < rescaled.makespan


def test_latency_and_transfers_in_flight_count(sparse: EntryProgram):
    base = simulate(program_job(sparse, ASCEND, taken=False), held=False).makespan
    far = scaled(ASCEND, "routes.ddr->ub.latency", 2)
    assert simulate(program_job(sparse, far, taken=False), held=False).makespan > base
    assert simulate(program_job(sparse, ASCEND, taken=False), held=True).makespan > 2 * base


def test_one_transfer_feeds_both_vector_units_or_goes_twice(sparse: EntryProgram):
    fix = ASCEND.engines["fix"]
    one = replace(ASCEND, engines={**ASCEND.engines, "fix": replace(fix, destinations=1)})
    at = next(at for at, task in enumerate(sparse.tasks) if task.origin.stage == "p to ub")
    both, twice = (int(program_job(sparse, machine, taken=False).costs.work[at]) for machine in (ASCEND, one))
    assert both == pytest.approx(32 * 64 * 4 / 128 / 1650e6 * 1e12, abs=1)
    assert twice == pytest.approx(2 * both, abs=1)


def test_transfers_through_one_bank_share_it(sparse: EntryProgram):
    """Queries and keys lie half in each bank of L1, so a bank is drawn on by both ways at once."""
    job = program_job(sparse, ASCEND)
    assert sum(shared.bank for shared in job.pools) == 2
    fast = scaled(ASCEND, "memories.l1.bank_rate", 4)
    assert simulate(program_job(sparse, fast), held=False).makespan <= simulate(job, held=False).makespan


def test_an_engine_that_the_machine_has_not(sparse: EntryProgram):
    with pytest.raises(KeyError, match="mte2"):
        program_job(sparse, NPU)
