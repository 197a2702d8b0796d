"""The device against onnxruntime, group by group: both get the same inputs and caches in every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import npurt
from npuc.compare.entries import HEAD, StagedEntries
from npuc.compare.groups import Group
from npuc.compare.tolerance import Difference, Tolerance, measure
from npuc.graph.entry import StateSpec


@dataclass(frozen=True)
class GroupFinding:
    """The first group that diverges, and the run of its entry."""

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


class ComparedEntries:
    """Runs each entry in both places and raises Found at the first group beyond the tolerance.

    compared: tensors so far.
    """

    def __init__(
        self, device: npurt.Device, staged: StagedEntries, groups: Mapping[str, Sequence[Group]],
        states: Sequence[StateSpec], tolerance: Tolerance,
    ) -> None:  # fmt: skip
        self._device, self._staged, self._groups, self._tolerance = device, staged, groups, tolerance
        self._outputs = {state.id: state.output or "" for state in states}
        self.compared = 0

    def body(self, label: str, ids: np.ndarray, n_past: int, n_new: int) -> np.ndarray:
        for id, held in self._staged.states.items():
            self._device.set_state(id, held)
        hidden = self._staged.body(label, ids, n_past, n_new)
        found = self._device.run(label, {"input_ids": ids}, n_past=n_past, n_new=n_new)
        wanted = dict(self._staged.values)
        for id, output in self._outputs.items():
            found[output] = self._device.state(id)[:, :, n_past : n_past + n_new]
            wanted[output] = wanted[output][:, :, :n_new]
        self._compare(label, found, wanted, n_past, n_new)
        return hidden

    def head(self, hidden: np.ndarray) -> np.ndarray:
        logits = self._staged.head(hidden)
        self._compare(HEAD, self._device.run(HEAD, {"hidden": hidden}), self._staged.values, 0, 0)
        return logits

    def _compare(
        self, label: str, found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], n_past: int, n_new: int
    ) -> None:
        self.compared += compare_groups(
            label, self._groups[label], found, wanted, self._tolerance, n_past=n_past, n_new=n_new
        )


def compare_groups(
    label: str, groups: Sequence[Group], found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray],
    tolerance: Tolerance, *, n_past: int = 0, n_new: int = 0,
) -> int:  # fmt: skip
    """Compares one run in the order of the groups; the number of tensors compared. Raises Found."""
    count = 0
    for group in groups:
        if group.value in found and group.value in wanted:
            difference = measure(found[group.value], wanted[group.value], tolerance)
            count += 1
            if not difference.within:
                raise Found(GroupFinding(label, n_past, n_new, group, difference))
    return count
