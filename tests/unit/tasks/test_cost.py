"""Times of programs that are not blobs: the same as the blob's, and those of a machine of another kind."""

from __future__ import annotations

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
    """4 blocks of 64 keys: 1,024 cycles each for 64 heads and 512 channels, and start-up and issue of 8 steps each."""
    cycle = 1 / 1650e6
    want = 4 * (1024 + 8 * (6 + 6)) * cycle
    # where nothing is rescaled, each product that starts from zero sleeps and costs its issue alone
    job = program_job(sparse, ASCEND, taken=False)
    asleep = sum(
        not work for work, queue in zip(job.costs.work.tolist(), job.queue.tolist(), strict=True)
        if queue == job.queues.index("m")
    )  # fmt: skip
    assert busy(sparse, "m", False) == pytest.approx((want + asleep * 6 * cycle) * 1e12, rel=1e-4)


def test_rescaling_costs_time(sparse: EntryProgram):
    quiet, rescaled = (simulate(program_job(sparse, ASCEND, taken=taken), held=False) for taken in (False, True))
    assert quiet.makespan < rescaled.makespan


def test_latency_and_transfers_in_flight_count(sparse: EntryProgram):
    base = simulate(program_job(sparse, ASCEND, taken=False), held=False).makespan
    far = scaled(ASCEND, "routes.ddr->ub.latency", 2)
    assert simulate(program_job(sparse, far, taken=False), held=False).makespan > base
    assert simulate(program_job(sparse, ASCEND, taken=False), held=True).makespan > 2 * base


def test_an_engine_that_the_machine_has_not(sparse: EntryProgram):
    with pytest.raises(KeyError, match="mte2"):
        program_job(sparse, NPU)
