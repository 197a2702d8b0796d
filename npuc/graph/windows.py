"""States that a run replaces, in a language model: taken after the last valid row, or only where every row is valid.

The rows of a last chunk past the prompt are padding. A state that is the last rows of something (the window of a
convolution) is cut behind the last valid row instead. Any other replaced state has seen the padding; an entry that
makes one may only run with all its rows valid, and the rest of a prompt goes through the entry with one row.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuc.frontend.errors import Problems
from npuc.graph.nodes import DOMAIN, Builder, dims
from npuc.graph.state_class import StateClass
from npuc.graph.state_info import StateInfo
from npuc.graph.static import N_NEW, Draft


def needs_whole_runs(classes: Sequence[StateClass]) -> bool:
    """Whether a replaced state cannot be kept clear of padding."""
    return any(kind.kind in ("replace", "write_only") and not kind.is_window for kind in classes)


def check_single_rows(classes: Sequence[StateClass], fixed_rows: int | None) -> None:
    """Raises ModelRefused naming the states that a single token cannot advance, as each run takes several rows."""
    problems = Problems()
    for kind in classes if (fixed_rows or 1) > 1 else ():
        if kind.kind == "replace" and not kind.is_window:
            problems.add(
                f"state {kind.id!r} is replaced by each run ({kind.why}), and the graph was exported with {fixed_rows} "
                "rows a run: a single token would bring padding into it; export it with one row, or an open number"
            )
    problems.refuse()


def take_windows(draft: Draft, states: Sequence[StateInfo], classes: Sequence[StateClass]) -> None:
    """Cuts each window state behind the last valid row, in place: npuc.LastRows(Concat, n_new). One row is always
    valid, so that entries of one row keep the model's own Slice."""
    if draft.rows == 1:
        return
    n_new = next(value for value in draft.graph.inputs if value.name == N_NEW)
    made = {output.name: output for node in draft.graph for output in node.outputs}
    for state, kind in zip(states, classes, strict=True):
        if not kind.is_window:
            continue
        place = next(i for i, value in enumerate(draft.graph.outputs) if value.name == state.output)
        old, joined = draft.graph.outputs[place], made[kind.rows]
        node = old.producer()
        assert node is not None and old.dtype is not None and kind.row_axis is not None, "it comes from a Slice"
        attrs = {"axis": kind.row_axis, "count": kind.kept}
        draft.graph.outputs[place] = Builder(draft.graph, node, [node]).op(
            "LastRows", [joined, n_new], dims(old), old.dtype, attrs, DOMAIN
        )
