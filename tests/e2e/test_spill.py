"""Spilling: a program scheduled for less memory than it was lowered for gives the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

import npuc
from npuc.check import check
from npuc.driver import Compiled, CompileOptions, compile_model
from npuc.emit import write_blob
from npuc.schedule import EntryProgram, OverflowRefused, schedule
from npuc.tasks import Buffer, TaskGraph
from npurt.target import Target, load_target
from tests.support.models import CORPUS, Answer, answer

SMALL = CompileOptions(max_prompt_len=12, min_response_len=8, capacities=(11, 20), chunk=4)
DEFAULT = CompileOptions(max_prompt_len=64, min_response_len=32, chunk=32)
MODELS = {
    "llama": (CORPUS / "llama-torchdyn-op18" / "model.onnx", SMALL),
    "gpt2": (CORPUS / "gpt2-torchdyn-op18" / "model.onnx", SMALL),
    "default": (Path(npuc.__file__).parent / "data" / "default_model", DEFAULT),
}
PROMPT, FED = [5, 6, 7, 8, 9, 10, 11], [1, 2, 3]


@dataclass(frozen=True)
class Whole:
    """A model compiled for the whole scratchpad, and what its blob answers."""

    compiled: Compiled
    answer: Answer


def with_cmx(nbytes: int, folder: Path) -> Target:
    """npu40xx with a scratchpad of so many bytes, from a target file."""
    text = files("npurt.target").joinpath("npu40xx.toml").read_text()
    path = folder / f"cmx{nbytes}.toml"
    path.write_text(text.replace('"1439 KiB"', f'"{nbytes} B"'))
    target = load_target(str(path))
    assert target.on_chip == {"cmx": nbytes}
    return target


def bounds(graph: TaskGraph) -> tuple[int, int]:
    """(most on-chip bytes that one task touches: less cannot do; most that live at one task: less has to spill)."""
    ends: dict[Buffer, list[int]] = {}
    touched = []
    for index, task in enumerate(graph.tasks):
        buffers = dict.fromkeys(r.buffer for r in (*task.reads, *task.writes) if r.buffer.memory == "cmx")
        touched.append(sum(buffer.nbytes for buffer in buffers))
        for buffer in buffers:
            ends.setdefault(buffer, [index, index])[1] = index
    live = [sum(b.nbytes for b, (first, last) in ends.items() if first <= at <= last) for at in range(len(touched))]
    return max(touched), max(live)


def least_memory(graph: TaskGraph, folder: Path) -> tuple[EntryProgram, Target]:
    """The program for the least of some sizes of the scratchpad, from what one task needs to what needs no spilling."""
    least, most = bounds(graph)
    step = max(64, (most - least) // 8 // 64 * 64)
    for nbytes in range(-(-least // 64) * 64, 2 * most, step):
        target = with_cmx(nbytes, folder)
        try:
            return schedule(graph, target), target
        except OverflowRefused:
            continue
    raise AssertionError("does not fit into twice the memory that is live")


@pytest.fixture(scope="module", params=MODELS)
def whole(request, tmp_path_factory) -> Whole:
    path, options = MODELS[request.param]
    compiled = compile_model(path, options)
    assert compiled is not None
    assert all(program.spills.nbytes == 0 for program in compiled.programs)
    return Whole(compiled, answer(write(compiled, compiled.programs, tmp_path_factory.mktemp("whole")), PROMPT, FED))


def write(compiled: Compiled, programs: list[EntryProgram], folder: Path) -> Path:
    path = folder / "m.npu"
    write_blob(programs, compiled.states, compiled.metadata, compiled.assets, path)
    return path


def test_spilled_programs_are_proven_and_give_the_same_bits(whole, tmp_path):
    programs = []
    for lowered in whole.compiled.lowered:
        before = list(lowered.graph.tasks)
        program, target = least_memory(lowered.graph, tmp_path)
        assert check(program, target) == []
        assert lowered.graph.tasks == before, "the graph that was given is as it was"
        added = [task for task in program.tasks if task.origin.stage in ("spill", "reload")]
        spills = program.spills
        assert len(program.tasks) == len(before) + len(added)
        assert len(added) == spills.stores + spills.loads
        assert spills.nbytes == sum(task.writes[0].nbytes for task in added)
        assert program.ddr_bytes == whole_bytes(whole.compiled, program.entry) + spills.nbytes
        programs.append(program)
    assert all(program.spills.stores for program in programs if program.entry != "head")
    got = answer(write(whole.compiled, programs, tmp_path), PROMPT, FED)
    np.testing.assert_array_equal(got.prompt, whole.answer.prompt)
    np.testing.assert_array_equal(got.step, whole.answer.step)
    assert got.tokens == whole.answer.tokens


def whole_bytes(compiled: Compiled, entry: str) -> int:
    return next(program.ddr_bytes for program in compiled.programs if program.entry == entry)


def test_a_spilled_schedule_is_the_same_again(whole, tmp_path):
    graph = whole.compiled.lowered[0].graph
    first, target = least_memory(graph, tmp_path)
    second = schedule(graph, target)
    assert [task.origin for task in first.tasks] == [task.origin for task in second.tasks]
    assert list(first.offsets.values()) == list(second.offsets.values())
    assert (first.barriers, first.sync) == (second.barriers, second.sync)


def test_a_model_for_a_small_scratchpad_compiles_by_tiles_and_spills(tmp_path):
    """The driver's own way: the model compiles for a quarter of what one task wants at full size."""
    path, options = MODELS["default"]
    target = with_cmx(120 * 1024, tmp_path)
    small = compile_model(path, CompileOptions(**{**vars(options), "target": str(tmp_path / "cmx122880.toml")}))
    assert small is not None
    for program in small.programs:
        assert check(program, target) == []
        assert program.cmx_peak <= 120 * 1024
