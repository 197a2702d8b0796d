"""The model as a pure function, run the way its exporter meant it: any number of rows, caches that grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuc.compare.errors import OracleRefused
from npuc.compare.oracle import Oracle
from npuc.graph.dims import InputDims
from npuc.graph.entry import StateSpec
from npuc.graph.roles import Role
from npuc.graph.state_info import StateInfo


@dataclass(frozen=True)
class Names:
    """How a graph calls its states: by id, the names before and after a run.

    The file's own names for a pair of an input and an output; `state.<id>` and `next.<id>` once it is pure.
    """

    before: Mapping[str, str]
    after: Mapping[str, str]

    @classmethod
    def of(cls, states: Sequence[StateInfo], *, pure: bool) -> Names:
        before, after = {}, {}
        for state in states:
            own = pure or state.form == "variable"
            if state.input is not None:
                before[state.id] = state.input if own else state.aliases[0]
            if state.output is not None:
                after[state.id] = state.output if own else state.aliases[1]
        return cls(before, after)


@dataclass(frozen=True)
class Recording:
    """float logits: of every prompt position [n, V], and by step of each fed token [V]; `others` has those of a first
    step in every other capacity, by entry. tokens: the greedy choice after the prompt and after each step."""

    prompt: np.ndarray
    steps: np.ndarray
    others: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def tokens(self) -> list[int]:
        return [int(row.argmax()) for row in (self.prompt[-1], *self.steps)]

    def parts(self) -> dict[str, np.ndarray]:
        """What there is to compare, by the name in reports."""
        steps = {"logits of the steps": self.steps} if len(self.steps) else {}
        others = {f"logits of a step in {label}": row for label, row in self.others.items()}
        return {"logits of the prompt": self.prompt, **steps, **others}


def answer_whole(
    oracle: Oracle, dims: InputDims, names: Names, prompt: Sequence[int], tokens: int, fed: Sequence[int] = ()
) -> Recording:
    """Feeds a prompt and then `tokens` more: those of `fed`, and behind them greedy choices."""
    run = _Run(oracle, dims, names)
    logits = run.feed(prompt)
    steps: list[np.ndarray] = []
    last = logits[-1]
    for place in range(tokens):
        last = run.feed([fed[place] if place < len(fed) else int(last.argmax())])[-1]
        steps.append(last)
    return Recording(logits, np.array(steps, np.float32).reshape(len(steps), logits.shape[-1]))


class _Run:
    """One answer in the making: the caches between the runs."""

    def __init__(self, oracle: Oracle, dims: InputDims, names: Names) -> None:
        if dims.fixed_rows not in (None, 1):
            raise OracleRefused(
                f"the graph takes exactly {dims.fixed_rows} rows a run: its answers cannot be fed token by token"
            )
        self._oracle, self._dims, self._names = oracle, dims, names
        self._past = 0
        start = self._shapes(1)
        self._states = {}
        for state in dims.roles.states:
            if state.id in names.before:
                name = names.before[state.id]
                zeros = np.zeros(start[state.input or ""], oracle.inputs[name])
                self._states[name] = zeros if state.initial is None or state.growing_axis is not None else state.initial

    def _shapes(self, rows: int) -> dict[str, tuple[int, ...]]:
        """Shapes of all inputs, by name, for a run of so many new rows."""
        found = self._dims.shapes(self._past, rows).items()
        return {value.name or "": tuple(int(n or 0) for n in shape) for value, shape in found}

    def feed(self, ids: Sequence[int]) -> np.ndarray:
        """Logits [n, V] of these tokens, as float32."""
        size = self._dims.fixed_rows or len(ids)
        return np.concatenate([self._rows(ids[first : first + size]) for first in range(0, len(ids), size)])

    def _rows(self, ids: Sequence[int]) -> np.ndarray:
        roles, past = self._dims.roles, self._past
        feeds = dict(self._states)
        for name, shape in self._shapes(len(ids)).items():
            role = roles.inputs[name]
            if role is Role.IDS:
                feeds[name] = np.array(ids).reshape(shape)
            elif role is Role.MASK:
                feeds[name] = np.ones(shape)
            elif role is Role.POSITIONS:
                feeds[name] = np.broadcast_to(np.arange(past, past + len(ids)), shape)
            elif role in (Role.COUNT, Role.TOTAL, Role.LAST) and name not in feeds:
                total = min(past + len(ids), self._dims.circle or past + len(ids))
                counts = {Role.COUNT: past, Role.TOTAL: total, Role.LAST: total - 1}
                feeds[name] = np.full(shape, counts[role])
        found = self._oracle.run(feeds)
        for id, name in self._names.before.items():
            if id in self._names.after:
                self._states[name] = found[self._names.after[id]]
        self._past += len(ids)
        logits = found[roles.logits]
        return logits.reshape(-1, logits.shape[-1]).astype(np.float32)


def run_plain(
    oracles: Sequence[Oracle], names: Names, states: Sequence[StateSpec], infos: Sequence[StateInfo],
    inputs: Mapping[str, np.ndarray], *, new_rows: bool,
) -> list[dict[str, np.ndarray]]:  # fmt: skip
    """Outputs of a run of a plain graph by each oracle on the same inputs, states kept between them; `next.<id>` among
    them. new_rows: whether the graphs give just the new rows of growing states."""
    after = {name: id for id, name in names.after.items()}
    by_id = {state.id: state for state in states}
    held = first_values(states, infos)
    results = []
    for oracle in oracles:
        before = {name: held[id] for id, name in names.before.items() if name in oracle.inputs}
        found = oracle.run({**inputs, **before})
        for name in [name for name in found if name in after]:
            state = by_id[after[name]]
            held[state.id] = grown(state, held[state.id], found[name]) if new_rows else found[name]
        results.append({f"next.{after[n]}" if n in after else n: held[after[n]] if n in after else value
                        for n, value in found.items()})  # fmt: skip
    return results


def first_values(states: Sequence[StateSpec], infos: Sequence[StateInfo]) -> dict[str, np.ndarray]:
    """The states before the first run, by id; a growing one with the rows that it starts with."""
    starts = {i.id: 0 if i.initial is None else i.initial.shape[i.growing_axis or 0] for i in infos}
    return {s.id: rows_of(s, initial(s), 0, starts[s.id]) for s in states}


def grown(state: StateSpec, before: np.ndarray, given: np.ndarray) -> np.ndarray:
    """A state after a run whose entry gives its new value, or of a growing one the new rows."""
    return given if state.kind != "append" else np.concatenate([before, given], axis=state.row_axis)


def rows_of(state: StateSpec, value: np.ndarray, first: int, count: int) -> np.ndarray:
    """Rows of tokens in a growing state's value, of a ring those that it still has; all of another's value."""
    if not state.gains_rows or state.row_axis is None:
        return value
    return np.take(value, slots_of(state, first, count), axis=state.row_axis)


def past_of(state: StateSpec, value: np.ndarray, capacity: int) -> np.ndarray:
    """What an entry of this capacity reads of a state's value."""
    return value[:, :, :capacity] if state.gains_rows else value


def valid_rows(state: StateSpec, rows: np.ndarray, n_new: int) -> np.ndarray:
    """Of a run's new rows those that a growing state keeps: the valid ones, in a ring the last of them; else all."""
    if not state.gains_rows:
        return rows
    valid = rows[:, :, :n_new]
    return valid[:, :, valid.shape[2] - len(slots_of(state, 0, n_new)) :]


def slots_of(state: StateSpec, first: int, count: int) -> np.ndarray:
    """Slots of tokens in a growing state; a ring has those of the last tokens alone."""
    tokens = np.arange(first, first + count)
    assert state.row_axis is not None
    ring = state.shape[state.row_axis]
    return tokens if state.kind == "append" else tokens[-ring:] % ring


def initial(state: StateSpec) -> np.ndarray:
    """A state's value before the first run, in its physical shape."""
    if state.initial is None:
        return np.zeros(state.shape, state.dtype.storage)
    return np.broadcast_to(state.initial, state.shape)
