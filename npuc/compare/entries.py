"""The entries of a language model, driven as a session drives them, on the device or in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import onnx_ir as ir

import npurt
from npuc.compare.oracle import Oracle
from npuc.compare.original import Recording, initial, past_of, slots_of, valid_rows
from npuc.graph.entry import LlmInfo, StateSpec

PREFILL, HEAD = "prefill", "head"
AnyDevice = npurt.Device | npurt.FastDevice


class Entries(Protocol):
    """Runs entries on caches of their own; the head's logits, or those of the body where the graph is still whole."""

    def body(self, label: str, ids: np.ndarray, n_past: int, n_new: int) -> np.ndarray:
        """`hidden` [1, rows, width] after ids [1, rows]; the cache then has n_new rows more."""

    def head(self, hidden: np.ndarray) -> np.ndarray:
        """Logits [V] of one row [1, 1, width]."""


def answer(
    entries: Entries, llm: LlmInfo, prompt: Sequence[int], fed: Sequence[int], *, whole: bool, others: bool
) -> Recording:
    """Feeds a prompt in chunks and then the tokens `fed`. whole: no chunk has padding, the last tokens go one by one.
    others: the first step also runs in every other capacity that holds it, which writes the same rows again."""
    rows: list[np.ndarray] = []
    while len(rows) < len(prompt):
        first = len(rows)
        ids = prompt[first : first + llm.chunk]
        if whole and len(ids) < llm.chunk:
            label = next(f"generate.{capacity}" for capacity in llm.capacities if capacity > first)
            rows.append(entries.head(entries.body(label, np.array([ids[:1]], np.int64), first, 1)))
            continue
        padded = np.zeros((1, llm.chunk), np.int64)
        padded[0, : len(ids)] = ids
        hidden = entries.body(PREFILL, padded, first, len(ids))
        rows += [entries.head(hidden[:, row : row + 1]) for row in range(len(ids))]
    steps: list[np.ndarray] = []
    elsewhere: dict[str, np.ndarray] = {}
    for place, token in enumerate(fed):
        past = len(prompt) + place
        labels = [f"generate.{capacity}" for capacity in llm.capacities if capacity > past]
        for label in labels if place == 0 and others else labels[:1]:
            logits = entries.head(entries.body(label, np.array([[token]], np.int64), past, 1))
            if label == labels[0]:
                steps.append(logits)
            else:
                elsewhere[label] = logits[None]
    return Recording(np.array(rows, np.float32), np.array(steps, np.float32).reshape(len(steps), -1), elsewhere)


class DeviceEntries:
    """The entries of a blob on the simulated device."""

    def __init__(self, device: AnyDevice) -> None:
        self._device = device
        device.reset()

    def body(self, label: str, ids: np.ndarray, n_past: int, n_new: int) -> np.ndarray:
        return self._device.run(label, {"input_ids": ids}, n_past=n_past, n_new=n_new)["hidden"]

    def head(self, hidden: np.ndarray) -> np.ndarray:
        return self._device.run(HEAD, {"hidden": hidden})["logits"].reshape(-1)


class StagedEntries:
    """The entries of a stage in onnxruntime. models: by label; no head before the graph is cut into body and head.

    extra: by label, values that are read, too; `values` holds all outputs of the last run. capacities: past slots that
    an entry's cache inputs have. logits: the name of that output before the cut.
    """

    def __init__(
        self, models: Mapping[str, ir.Model], states: Sequence[StateSpec], capacities: Mapping[str, int], logits: str,
        step: str, extra: Mapping[str, Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        self._oracles = {
            label: Oracle(model, f"entry {label} after step {step}", (extra or {}).get(label, ()))
            for label, model in models.items()
        }
        self._capacities, self._logits = capacities, logits
        self.states = {state.id: np.array(initial(state)) for state in states}
        self._specs = {state.id: state for state in states}
        self.values: dict[str, np.ndarray] = {}

    def body(self, label: str, ids: np.ndarray, n_past: int, n_new: int) -> np.ndarray:
        oracle = self._oracles[label]
        feeds = {"n_past": np.array(n_past), "n_new": np.array(n_new)}
        before = {spec.input: spec for spec in self._specs.values()}
        for name in oracle.inputs:
            if name in before:
                feeds[name] = past_of(before[name], self.states[before[name].id], self._capacities[label])
            elif name not in feeds:
                feeds[name] = ids
        found = self.values = oracle.run(feeds)
        for id, spec in self._specs.items():
            if spec.gains_rows and spec.output is not None:
                rows = found[spec.output][:, :, -ids.shape[1] :]  # the new ones are last, or, after the cut, all of it
                slots = slots_of(spec, n_past, n_new)
                self.states[id][:, :, slots] = valid_rows(spec, rows, n_new)
            elif spec.output is not None:
                self.states[id] = found[spec.output]
        return found["hidden"] if HEAD in self._oracles else found[self._logits]

    def head(self, hidden: np.ndarray) -> np.ndarray:
        if HEAD not in self._oracles:
            return hidden.reshape(-1)
        self.values = self._oracles[HEAD].run({"hidden": hidden})
        return self.values["logits"].reshape(-1)
