"""The device against onnxruntime, group by group: both get the same inputs and caches in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuc.compare.entries import HEAD, AnyDevice, StagedEntries
from npuc.compare.groups import Group
from npuc.compare.isolate import isolated
from npuc.compare.original import past_of, rows_of, valid_rows
from npuc.compare.tolerance import Difference, Tolerance, measure
from npuc.graph.entry import EntryGraph, ModelGraphs


@dataclass(frozen=True)
class GroupFinding:
    """The first group that diverges, and the run of its entry. difference: from what onnxruntime makes of the device's
    own values."""

    entry: str
    n_past: int
    n_new: int
    group: Group
    difference: Difference

    def lines(self) -> list[str]:
        """What people need to find it: one line, then details."""
        group = self.group
        run = f", n_past {self.n_past}, n_new {self.n_new}" if self.n_new else ""
        return [
            f"first group that diverges: {group.node} ({group.op}) in entry {self.entry}{run}",
            f"  value    {group.value} {group.dtype}{list(group.shape)}",
            f"  error    {self.difference}",
            f"  kernel   {', '.join(group.kernels)} on {', '.join(group.engines)}",
            f"  sources  {', '.join(group.sources)}",
        ]


class Found(Exception):
    """Ends the comparison at the first finding."""

    def __init__(self, finding: GroupFinding) -> None:
        super().__init__(finding.group.value)
        self.finding = finding


@dataclass
class Tally:
    """Tensors compared so far, and those among them that are off only because what they are computed from is."""

    compared: int = 0
    drifted: int = 0


@dataclass(frozen=True)
class EntryRun:
    """One run of an entry in both places: what the device had for inputs (caches as well), and both results by name."""

    entry: EntryGraph
    given: Mapping[str, np.ndarray]
    found: Mapping[str, np.ndarray]
    wanted: Mapping[str, np.ndarray]
    n_past: int = 0
    n_new: int = 0


def compare_groups(run: EntryRun, groups: Sequence[Group], tolerance: Tolerance, tally: Tally) -> None:
    """Compares one run in the order of the groups.

    A group that is beyond the tolerance is judged again by what onnxruntime makes of the device's own values: rounding
    adds up from group to group, and a right one must not be blamed for it. Raises Found for one that is wrong even so.
    """
    for group in groups:
        if group.value not in run.found or group.value not in run.wanted:
            continue
        found = run.found[group.value]
        tally.compared += 1
        if measure(_read(found, run, group), _read(run.wanted[group.value], run, group), tolerance).within:
            continue
        whole = {each.value: run.found[each.value] for each in groups if _is_whole(run, each)}
        own = isolated(run.entry.model, group.value, {**run.given, **whole})
        own = own if own.shape == found.shape else _of_state(own, found, run.n_new)
        difference = measure(_read(found, run, group), _read(own, run, group), tolerance)
        if not difference.within:
            raise Found(GroupFinding(run.entry.label, run.n_past, run.n_new, group, difference))
        tally.drifted += 1


def _read(value: np.ndarray, run: EntryRun, group: Group) -> np.ndarray:
    """What somebody reads of a value: of a mixture of experts, which leaves padding out, the valid rows."""
    return value[..., : run.n_new, :] if run.n_new and group.op == "npuc.MoE" else value


def _of_state(own: np.ndarray, found: np.ndarray, n_new: int) -> np.ndarray:
    """Of a run's new rows the valid ones, and of these as many of the last as a state has taken."""
    valid = own[:, :, :n_new]
    return valid[:, :, valid.shape[2] - found.shape[2] :]


def _is_whole(run: EntryRun, group: Group) -> bool:
    """Whether the run has all of a group's value, and not just the valid rows."""
    return group.value in run.found and run.found[group.value].shape == group.shape


class ComparedEntries:
    """Runs each entry in both places and raises Found at the first group that is wrong."""

    def __init__(
        self, device: AnyDevice, staged: StagedEntries, graphs: ModelGraphs, groups: Mapping[str, Sequence[Group]],
        tolerance: Tolerance, tally: Tally,
    ) -> None:  # fmt: skip
        self._device, self._staged, self._graphs = device, staged, graphs
        self._groups, self._tolerance, self._tally = groups, tolerance, tally

    def body(self, label: str, ids: np.ndarray, n_past: int, n_new: int) -> np.ndarray:
        for id, held in self._staged.states.items():
            self._device.set_state(id, held)
        entry, states = self._graphs.entry(label), self._graphs.states
        given = {"input_ids": ids, "n_past": np.array(n_past), "n_new": np.array(n_new)}
        given |= {s.input: past_of(s, self._device.state(s.id), entry.capacity) for s in states if s.input is not None}
        hidden = self._staged.body(label, ids, n_past, n_new)
        found = self._device.run(label, {"input_ids": ids}, n_past=n_past, n_new=n_new)
        wanted = dict(self._staged.values)
        for state in states:
            if state.output is not None:
                found[state.output] = rows_of(state, self._device.state(state.id), n_past, n_new)
                wanted[state.output] = valid_rows(state, wanted[state.output], n_new)
        self._compare(EntryRun(entry, given, found, wanted, n_past, n_new))
        return hidden

    def head(self, hidden: np.ndarray) -> np.ndarray:
        logits = self._staged.head(hidden)
        given = {"hidden": hidden}
        self._compare(EntryRun(self._graphs.entry(HEAD), given, self._device.run(HEAD, given), self._staged.values))
        return logits

    def _compare(self, run: EntryRun) -> None:
        compare_groups(run, self._groups[run.entry.label], self._tolerance, self._tally)
