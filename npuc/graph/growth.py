"""Growing states of a plain graph: each run adds equally many rows, so each run gets a static entry of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from npuc.frontend.errors import ModelRefused, Problems
from npuc.graph.append import cut_to_new_rows
from npuc.graph.infer import Inference
from npuc.graph.interpret import Interpreter, input_facts
from npuc.graph.nodes import dims
from npuc.graph.options import BuildOptions
from npuc.graph.state_class import StateClass
from npuc.graph.state_info import StateInfo
from npuc.graph.static import Draft, main_draft

MAX_ENTRIES = 64
"""Runs that a growing state may be compiled for; every run is a whole program in the blob."""


@dataclass(frozen=True)
class Growing:
    """One state that gains rows. axis: of its rows. start: rows before the first run; most: rows that it has room for;
    rows: name of the value that a run puts behind it."""

    id: str
    input: str
    axis: int
    start: int
    most: int
    rows: str


def plain_drafts(
    model: ir.Model,
    states: Sequence[StateInfo],
    classes: Sequence[StateClass],
    options: BuildOptions,
    inference: Inference,
    report: list[str],
) -> list[Draft]:
    """The entries of a graph that is no language model: one, or where states grow one for each run up to their bound.

    Raises ModelRefused for a growing state that has no bound, does not gain rows behind what it has, gains another
    number than the others, or needs more than MAX_ENTRIES runs.
    """
    open_axes = dict(_open_axes(states))
    growing = list(_growing(states, classes))
    first = main_draft(model, options, open_axes)
    if not growing:
        return [first]
    step = _rows_of_a_run(first, growing, inference)
    runs = _runs(growing, step)
    drafts = []
    for run in range(runs):
        gained = run * step
        extents = open_axes | {(g.input, g.axis): g.start + gained for g in growing}
        draft = main_draft(model, options, extents, rows=step, capacity=gained)
        cut_to_new_rows(draft.graph, states, classes)  # before folding, which may take what joins constant rows
        drafts.append(draft)
    names = ", ".join(repr(g.id) for g in growing)
    last = "" if runs == 1 else f", main.{step}" if runs == 2 else f", main.{step} ... {drafts[-1].label}"
    report.append(f"state {names} grows by {step} rows a run: an entry for each of {runs} runs, main{last}")
    return drafts


def check_growth(draft: Draft, states: Sequence[StateInfo], classes: Sequence[StateClass]) -> None:
    """Raises ModelRefused naming a state that gains another number of rows in this run than in the first."""
    problems = Problems()
    for state, kind in zip(states, classes, strict=True):
        if kind.kind == "append" and kind.row_axis is not None:
            place = draft.outputs.index(state.output or "")
            rows = dims(draft.graph.outputs[place])[kind.row_axis]
            if rows != draft.rows:
                problems.add(
                    f"state {state.id!r} gains {rows} rows in the run that finds {draft.capacity}, {draft.rows} in the "
                    "first; each run must add equally many"
                )
    problems.refuse()


def _open_axes(states: Sequence[StateInfo]) -> Iterator[tuple[tuple[str, int], int]]:
    """(input, growing axis) of each state and the rows it starts with."""
    for state in states:
        if state.growing_axis is not None and state.input is not None:
            yield (state.input, state.growing_axis), _start(state)


def _start(state: StateInfo) -> int:
    axis = state.growing_axis
    return 0 if state.initial is None or axis is None else int(state.initial.shape[axis])


def _growing(states: Sequence[StateInfo], classes: Sequence[StateClass]) -> Iterator[Growing]:
    """The states that gain rows. Raises ModelRefused with all that cannot be compiled."""
    problems = Problems()
    for state, kind in zip(states, classes, strict=True):
        if kind.kind == "append" and (kind.rows is None or state.input is None):
            problems.add(f"state {state.id!r}: {kind.why}, a form that only a language model can have")
        elif kind.kind == "append" and state.max_rows is None:
            problems.add(
                f"state {state.id!r} grows along axis {kind.row_axis} and nothing bounds it: "
                f"give its largest extent, --state-rows {state.id}=N"
            )
        elif kind.kind == "append" and kind.row_axis is not None and kind.rows is not None:
            assert state.max_rows is not None and state.input is not None
            yield Growing(state.id, state.input, kind.row_axis, _start(state), state.max_rows, kind.rows)
    problems.refuse()


def _rows_of_a_run(first: Draft, growing: Sequence[Growing], inference: Inference) -> int:
    """Rows that the first run puts behind every growing state."""
    interpreter = Interpreter(inference, input_facts(first.shapes))
    interpreter.run(first.graph)
    made = {value.name: value for value in (*first.graph.inputs, *first.graph.initializers.values())}
    made.update({output.name: output for node in first.graph for output in node.outputs})
    problems, found = Problems(), dict[str, int]()
    for state in growing:
        shape = interpreter.fact(made[state.rows]).shape
        count = shape[state.axis] if shape is not None else None
        if count is None:
            problems.add(f"the number of rows that a run adds to state {state.id!r} follows from no size of the model")
        else:
            found[state.id] = count
    problems.refuse()
    if len(set(found.values())) > 1:
        counts = ", ".join(f"{id!r} {count}" for id, count in found.items())
        raise ModelRefused(
            [f"a run adds different numbers of rows to the growing states: {counts}; they must be equal"]
        )
    return next(iter(found.values()))


def _runs(growing: Sequence[Growing], step: int) -> int:
    """Runs until the first of the states is full."""
    problems = Problems()
    for state in growing:
        room = state.most - state.start
        if room < step:
            problems.add(
                f"--state-rows {state.id}={state.most}: the first run fills {state.start + step} rows, so at least "
                f"{state.start + step} are needed"
            )
    problems.refuse()
    tightest = min(growing, key=lambda g: g.most - g.start)
    runs = (tightest.most - tightest.start) // step if step else 1
    if runs > MAX_ENTRIES:
        most = tightest.start + MAX_ENTRIES * step
        raise ModelRefused(
            [
                f"--state-rows {tightest.id}={tightest.most}: a run adds {step} rows and each of the {runs} runs needs "
                f"an entry of its own; at most {MAX_ENTRIES} are made, so --state-rows {tightest.id}={most} is the most"
            ]
        )
    return runs
