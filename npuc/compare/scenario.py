"""The two kinds of comparison: an answer of a language model, and runs of a plain graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

from npuc.compare.device import ComparedEntries, EntryRun, Tally, compare_groups
from npuc.compare.entries import AnyDevice, DeviceEntries, StagedEntries, answer
from npuc.compare.groups import Group
from npuc.compare.oracle import Oracle
from npuc.compare.original import Names, Recording, answer_whole, initial, run_plain
from npuc.compare.tolerance import Tolerance
from npuc.graph.dims import InputDims
from npuc.graph.entry import LlmInfo, ModelGraphs
from npuc.graph.state_info import StateInfo

MAIN = "main"
Parts = Mapping[str, np.ndarray]
Groups = Mapping[str, Sequence[Group]]


class Scenario(Protocol):
    """The same inputs, run by whoever is asked; results by name, the same names everywhere."""

    def original(self, model: ir.Model, *, pure: bool) -> Parts:
        """The model as its exporter meant it; what the others are compared with. pure: its states are arguments."""

    def whole(self, model: ir.Model, step: str) -> Parts:
        """The whole model after a step of the pipeline."""

    def entries(self, models: Mapping[str, ir.Model], step: str) -> Parts:
        """The entries after a step of the pipeline, by label."""

    def device(self, device: AnyDevice) -> Parts:
        """The compiled program."""

    def groups(self, device: AnyDevice, groups: Groups, tolerance: Tolerance, tally: Tally) -> None:
        """Every group of every entry from equal inputs. Raises device.Found."""


class AnswerScenario:
    """A prompt and then tokens, one by one: the greedy choices of the original. recording: of the original."""

    recording: Recording

    def __init__(
        self, graphs: ModelGraphs, states: Sequence[StateInfo], dims: InputDims, prompt: Sequence[int], tokens: int
    ) -> None:
        assert graphs.llm is not None
        self._graphs, self._llm, self._infos, self._dims = graphs, graphs.llm, states, dims
        self._prompt, self._tokens = prompt, tokens
        self._capacities = {entry.label: entry.capacity for entry in graphs.entries}

    @property
    def _fed(self) -> Sequence[int]:
        return self.recording.tokens[: self._tokens]

    def original(self, model: ir.Model, *, pure: bool) -> Parts:
        names = Names.of(self._infos, pure=pure)
        oracle = Oracle(model, "the model")
        self.recording = answer_whole(oracle, self._dims, names, self._prompt, self._tokens)
        return _in_all_capacities(self.recording, self._llm, len(self._prompt))

    def whole(self, model: ir.Model, step: str) -> Parts:
        names = Names.of(self._infos, pure=True)
        oracle = Oracle(model, f"the model after step {step}")
        found = answer_whole(oracle, self._dims, names, self._prompt, self._tokens, self._fed)
        return _in_all_capacities(found, self._llm, len(self._prompt))

    def entries(self, models: Mapping[str, ir.Model], step: str) -> Parts:
        logits = self._dims.roles.logits
        staged = StagedEntries(models, self._graphs.states, self._capacities, logits, step)
        return answer(staged, self._llm, self._prompt, self._fed).parts()

    def device(self, device: AnyDevice) -> Parts:
        return answer(DeviceEntries(device), self._llm, self._prompt, self._fed).parts()

    def groups(self, device: AnyDevice, groups: Groups, tolerance: Tolerance, tally: Tally) -> None:
        models = {entry.label: entry.model for entry in self._graphs.entries}
        extra = {label: [group.value for group in found] for label, found in groups.items()}
        logits = self._dims.roles.logits
        staged = StagedEntries(models, self._graphs.states, self._capacities, logits, "ports", extra)
        compared = ComparedEntries(device, staged, self._graphs, groups, tolerance, tally)
        answer(compared, self._llm, self._prompt, self._fed)


def _in_all_capacities(recording: Recording, llm: LlmInfo, prompt: int) -> Parts:
    """The parts of a recording; a first step means the same whatever the capacity."""
    labels = [f"generate.{capacity}" for capacity in llm.capacities if capacity > prompt]
    others = dict.fromkeys(labels[1:], recording.steps[:1]) if len(recording.steps) else {}
    return Recording(recording.prompt, recording.steps, others).parts()


class PlainScenario:
    """Runs of a plain graph on the same inputs: two where it has states, so that a kept state is read, else one."""

    def __init__(self, graphs: ModelGraphs, states: Sequence[StateInfo], inputs: Mapping[str, np.ndarray]) -> None:
        self._graphs, self._infos, self._inputs = graphs, states, inputs
        self._runs = 2 if graphs.states else 1

    def original(self, model: ir.Model, *, pure: bool) -> Parts:
        return self._oracle(Oracle(model, "the model"), Names.of(self._infos, pure=pure))

    def whole(self, model: ir.Model, step: str) -> Parts:
        return self._oracle(Oracle(model, f"the model after step {step}"), Names.of(self._infos, pure=True))

    def entries(self, models: Mapping[str, ir.Model], step: str) -> Parts:
        return self._oracle(Oracle(models[MAIN], f"entry main after step {step}"), Names.of(self._infos, pure=True))

    def device(self, device: AnyDevice) -> Parts:
        device.reset()
        found = []
        for _ in range(self._runs):
            outputs = dict(device.run(MAIN, self._inputs))
            found.append(outputs | self._states(device))
        return self._parts(found)

    def groups(self, device: AnyDevice, groups: Groups, tolerance: Tolerance, tally: Tally) -> None:
        entry = self._graphs.entry(MAIN)
        oracle = Oracle(entry.model, "entry main after step ports", [group.value for group in groups[MAIN]])
        held = {state.id: initial(state) for state in self._graphs.states}
        for _ in range(self._runs):
            before = {state.input: held[state.id] for state in self._graphs.states if state.input is not None}
            wanted = oracle.run({**self._inputs, **before})
            for id, value in held.items():
                device.set_state(id, value)
            given = {s.input: device.state(s.id) for s in self._graphs.states if s.input is not None}
            found = dict(device.run(MAIN, self._inputs)) | self._states(device)
            run = EntryRun(entry, {**self._inputs, **given}, found, wanted)
            compare_groups(run, groups[MAIN], tolerance, tally)
            held.update({s.id: wanted[s.output] for s in self._graphs.states if s.output is not None})

    def _oracle(self, oracle: Oracle, names: Names) -> Parts:
        return self._parts(run_plain(oracle, names, self._graphs.states, self._inputs, self._runs))

    def _states(self, device: AnyDevice) -> dict[str, np.ndarray]:
        return {f"next.{s.id}": device.state(s.id) for s in self._graphs.states if s.output is not None}

    def _parts(self, runs: Sequence[Mapping[str, np.ndarray]]) -> Parts:
        wanted = {port.name for port in self._graphs.entry(MAIN).outputs}
        wanted |= {f"next.{s.id}" for s in self._graphs.states if s.output is not None}
        behind = [f" of run {place + 1}" if self._runs > 1 else "" for place in range(self._runs)]
        return {
            f"output {name}{suffix}": value
            for suffix, run in zip(behind, runs, strict=True)
            for name, value in run.items() if name in wanted
        }  # fmt: skip
