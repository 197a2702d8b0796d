"""The two kinds of comparison: an answer of a language model, and runs of a plain graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import onnx_ir as ir

from npuc.compare.device import ComparedEntries, EntryRun, Tally, compare_groups
from npuc.compare.entries import AnyDevice, DeviceEntries, Entries, StagedEntries, answer
from npuc.compare.groups import Group
from npuc.compare.oracle import Oracle
from npuc.compare.original import Names, Recording, answer_whole, first_values, grown, rows_of, run_plain
from npuc.compare.tolerance import Tolerance
from npuc.graph.dims import InputDims
from npuc.graph.entry import ModelGraphs, StateSpec
from npuc.graph.state_info import StateInfo

MAIN = "main"
_GROWN_RUNS = 3
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
        self._replaces = any(state.kind == "replace" for state in graphs.states)
        self._once = self._replaces or any(state.kind == "ring" for state in graphs.states)

    @property
    def _fed(self) -> Sequence[int]:
        return self.recording.tokens[: self._tokens]

    def original(self, model: ir.Model, *, pure: bool) -> Parts:
        names = Names.of(self._infos, pure=pure)
        oracle = Oracle(model, "the model")
        self.recording = answer_whole(oracle, self._dims, names, self._prompt, self._tokens)
        return self._in_all_capacities(self.recording)

    def whole(self, model: ir.Model, step: str) -> Parts:
        names = Names.of(self._infos, pure=True)
        oracle = Oracle(model, f"the model after step {step}")
        found = answer_whole(oracle, self._dims, names, self._prompt, self._tokens, self._fed)
        return self._in_all_capacities(found)

    def entries(self, models: Mapping[str, ir.Model], step: str) -> Parts:
        logits = self._dims.roles.logits
        staged = StagedEntries(models, self._graphs.states, self._capacities, logits, step)
        # before the cut, a graph takes its next states behind the last row, whether that is valid or not
        return self._parts(self._answer(staged, whole=self._replaces))

    def device(self, device: AnyDevice) -> Parts:
        return self._parts(self._answer(DeviceEntries(device), whole=self._llm.whole_runs))

    def groups(self, device: AnyDevice, groups: Groups, tolerance: Tolerance, tally: Tally) -> None:
        models = {entry.label: entry.model for entry in self._graphs.entries}
        extra = {label: [group.value for group in found] for label, found in groups.items()}
        logits = self._dims.roles.logits
        staged = StagedEntries(models, self._graphs.states, self._capacities, logits, "ports", extra)
        compared = ComparedEntries(device, staged, self._graphs, groups, tolerance, tally)
        self._answer(compared, whole=self._llm.whole_runs)

    def _answer(self, entries: Entries, *, whole: bool) -> Recording:
        """A step that replaces a state, or the oldest rows of a ring, cannot be run twice: it runs in one capacity."""
        return answer(entries, self._llm, self._prompt, self._fed, whole=whole, others=not self._once)

    def _parts(self, recording: Recording) -> Parts:
        """What there is to compare: of the prompt the last rows, as many as the original has. A graph may leave out
        the logits of all rows but the last itself, while an entry has a head for every row."""
        return replace(recording, prompt=recording.prompt[-len(self.recording.prompt) :]).parts()

    def _in_all_capacities(self, recording: Recording) -> Parts:
        """The parts of a recording; a first step means the same whatever the capacity."""
        labels = [f"generate.{capacity}" for capacity in self._llm.capacities if capacity > len(self._prompt)]
        again = len(recording.steps) and not self._once
        others = dict.fromkeys(labels[1:], recording.steps[:1]) if again else {}
        return self._parts(Recording(recording.prompt, recording.steps, others))


class PlainScenario:
    """Runs of a plain graph on the same inputs: two where it has states, so that a kept state is read, else one; where
    states grow the first three, each by its entry."""

    def __init__(self, graphs: ModelGraphs, states: Sequence[StateInfo], inputs: Mapping[str, np.ndarray]) -> None:
        self._graphs, self._infos, self._inputs = graphs, states, inputs
        labels = [entry.label for entry in graphs.entries]
        grows = any(state.kind == "append" for state in graphs.states)
        self._labels = labels[:_GROWN_RUNS] if grows else [MAIN] * (2 if graphs.states else 1)

    def original(self, model: ir.Model, *, pure: bool) -> Parts:
        return self._whole(Oracle(model, "the model"), Names.of(self._infos, pure=pure))

    def whole(self, model: ir.Model, step: str) -> Parts:
        return self._whole(Oracle(model, f"the model after step {step}"), Names.of(self._infos, pure=True))

    def entries(self, models: Mapping[str, ir.Model], step: str) -> Parts:
        oracles = {label: Oracle(models[label], f"entry {label} after step {step}") for label in self._labels}
        return self._run([oracles[label] for label in self._labels], Names.of(self._infos, pure=True), new_rows=True)

    def device(self, device: AnyDevice) -> Parts:
        device.reset()
        found = []
        held = first_values(self._graphs.states, self._infos)
        for label in self._labels:
            outputs = dict(device.run(label, self._inputs))
            held = {s.id: self._after(device, s, held[s.id], label) for s in self._graphs.states}
            found.append(outputs | {f"next.{s.id}": held[s.id] for s in self._graphs.states if s.output is not None})
        return self._parts(found)

    def groups(self, device: AnyDevice, groups: Groups, tolerance: Tolerance, tally: Tally) -> None:
        states = self._graphs.states
        held = first_values(states, self._infos)
        for label in self._labels:
            entry = self._graphs.entry(label)
            oracle = Oracle(entry.model, f"entry {label} after step ports", [group.value for group in groups[label]])
            wanted = oracle.run({**self._inputs, **{s.input: held[s.id] for s in states if s.input is not None}})
            for state in states:
                device.set_state(state.id, _filled(state, held[state.id]))
            given = {s.input: _cut(s, device.state(s.id), held[s.id]) for s in states if s.input is not None}
            found = dict(device.run(label, self._inputs))
            for state in states:
                if state.output is not None:
                    first = 0 if state.row_axis is None else held[state.id].shape[state.row_axis]
                    found[f"next.{state.id}"] = rows_of(state, device.state(state.id), first, entry.rows)
            run = EntryRun(entry, {**self._inputs, **given}, found, wanted)
            compare_groups(run, groups[label], tolerance, tally)
            held.update({s.id: grown(s, held[s.id], wanted[s.output]) for s in states if s.output is not None})

    def _whole(self, oracle: Oracle, names: Names) -> Parts:
        return self._run([oracle] * len(self._labels), names, new_rows=False)

    def _run(self, oracles: Sequence[Oracle], names: Names, *, new_rows: bool) -> Parts:
        runs = run_plain(oracles, names, self._graphs.states, self._infos, self._inputs, new_rows=new_rows)
        return self._parts(runs)

    def _after(self, device: AnyDevice, state: StateSpec, before: np.ndarray, label: str) -> np.ndarray:
        """A state after a run: of a growing one the rows that are filled."""
        filled = 0 if state.row_axis is None else before.shape[state.row_axis] + self._graphs.entry(label).rows
        return rows_of(state, device.state(state.id), 0, filled)

    def _parts(self, runs: Sequence[Mapping[str, np.ndarray]]) -> Parts:
        wanted = {port.name for port in self._graphs.entry(MAIN).outputs}
        wanted |= {f"next.{s.id}" for s in self._graphs.states if s.output is not None}
        behind = [f" of run {place + 1}" if len(runs) > 1 else "" for place in range(len(runs))]
        return {
            f"output {name}{suffix}": value
            for suffix, run in zip(behind, runs, strict=True)
            for name, value in run.items() if name in wanted
        }  # fmt: skip


def _filled(state: StateSpec, value: np.ndarray) -> np.ndarray:
    """A value in the physical shape of its state, zeros behind the rows."""
    whole = np.zeros(state.shape, value.dtype)
    whole[tuple(slice(extent) for extent in value.shape)] = value
    return whole


def _cut(state: StateSpec, whole: np.ndarray, like: np.ndarray) -> np.ndarray:
    """As many rows of a physical value as another has."""
    return whole if state.row_axis is None else rows_of(state, whole, 0, like.shape[state.row_axis])
