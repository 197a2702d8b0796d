"""Extents of a language model's inputs: from their roles, from the structure, and from the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.asked import check_llm_dims
from npuc.graph.infer import Dims, Inference
from npuc.graph.interpret import Interpreter, input_facts
from npuc.graph.nodes import producer
from npuc.graph.options import BuildOptions
from npuc.graph.roles import Role, Roles
from npuc.graph.state_class import StateClass

_PROBE_PAST, _PROBE_ROWS = 5, 3


@dataclass(frozen=True)
class InputDims:
    """Shapes of a language model's graph inputs as functions of n_past and rows. Batch is 1.

    states: state id to its shape, with None at the growing axis. kept: by id, rows at that axis at most. fixed_rows:
    rows a run that the graph insists on. circle: slots of circular caches, which no count of filled slots exceeds.
    """

    graph: ir.Graph
    roles: Roles
    states: dict[str, Dims]
    fixed_rows: int | None
    kept: Mapping[str, int] = field(default_factory=dict)
    circle: int | None = None

    def shapes(self, n_past: int, rows: int) -> dict[ir.Value, Dims]:
        """Shapes with n_past slots in the caches and `rows` new tokens."""
        by_input = {state.input: state.id for state in self.roles.states}
        result: dict[ir.Value, Dims] = {}
        for value in self.graph.inputs:
            role = self.roles.inputs[value.name or ""]
            if value.name in by_input:
                id = by_input[value.name]
                held = min(n_past, self.kept.get(id, n_past))
                result[value] = tuple(held if d is None else d for d in self.states[id])
            elif role in (Role.COUNT, Role.TOTAL, Role.LAST):
                result[value] = (1,) * len(value.shape or ())
            else:
                last = _columns(value, n_past + rows) if role is Role.MASK else rows
                result[value] = (1,) * (len(value.shape or ()) - 1) + (last,)
        return result


def _columns(mask: ir.Value, total: int) -> int:
    """Columns of an attention mask: one for each token, or for each slot of caches of a fixed size."""
    extent = mask.shape[-1] if mask.shape is not None and len(mask.shape) else None
    return extent if isinstance(extent, int) else total


def input_dims(
    graph: ir.Graph,
    roles: Roles,
    classes: Sequence[StateClass],
    options: BuildOptions,
    inference: Inference,
    report: list[str],
) -> InputDims:
    """Finds every extent. classes: of the states in `roles`.

    Raises ModelRefused naming each dim that has no value, with `--dim NAME=VALUE`.
    """
    by_name = {value.name: value for value in graph.inputs}
    ids = by_name[roles.ids]
    assert ids.shape is not None
    rows = ids.shape[-1]
    fixed_rows = int(rows) if isinstance(rows, int) else None
    states: dict[str, Dims] = {}
    names: dict[str, tuple[str, ...]] = {}
    for state, kind in zip(roles.states, classes, strict=True):
        value = by_name.get(state.input) if state.input else None
        names[state.id] = tuple(str(d) for d in value.shape) if value is not None and value.shape is not None else ()
        states[state.id] = tuple(
            _extent(axis, extent, axis == state.growing_axis and kind.slots is None, names[state.id], options)
            for axis, extent in enumerate(state.shape)
        )
    check_llm_dims(options, names.values())
    kept = {kind.id: kind.kept for kind in classes if kind.kept is not None}
    circle = min((kind.slots for kind in classes if kind.circular and kind.slots is not None), default=None)
    dims = InputDims(graph, roles, states, fixed_rows, kept, circle)
    _fill_from_structure(dims, names, inference, report)
    return dims


_UNKNOWN = -1


def _extent(axis: int, extent: int, grows: bool, names: tuple[str, ...], options: BuildOptions) -> int | None:
    if grows:
        return None
    if extent >= 0:
        return extent
    name = names[axis] if axis < len(names) else ""
    if name in options.dims:
        return options.dims[name]
    if axis == 0:
        return 1
    return _UNKNOWN


def _fill_from_structure(
    dims: InputDims, names: dict[str, tuple[str, ...]], inference: Inference, report: list[str]
) -> None:
    """An unknown extent of a cache is that of the rows which the graph appends to it."""
    unknown = [state for state in dims.roles.states if _UNKNOWN in dims.states[state.id]]
    if not unknown:
        return
    facts = input_facts(
        {
            value: tuple(None if d == _UNKNOWN else d for d in shape)
            for value, shape in dims.shapes(_PROBE_PAST, dims.fixed_rows or _PROBE_ROWS).items()
        }
    )
    interpreter = Interpreter(inference, facts)
    interpreter.run(dims.graph)
    outputs = {value.name: value for value in dims.graph.outputs}
    problems = Problems()
    for state in unknown:
        shape, appended = list(dims.states[state.id]), _appended(outputs.get(state.output))
        for axis, extent in enumerate(shape):
            fact = interpreter.facts.get(appended) if appended is not None else None
            found = fact.shape[axis] if fact is not None and fact.shape is not None else None
            name = names[state.id][axis] if names[state.id] else str(axis)
            if extent != _UNKNOWN:
                continue
            if found is None:
                problems.add(f"dim {name!r} of state {state.id!r} has no value; give it with --dim {name}=VALUE")
            else:
                shape[axis] = found
                line = f"dim {name!r} of the caches: {found}, the extent of the rows appended to them"
                if line not in report:
                    report.append(line)
        dims.states[state.id] = tuple(shape)
    problems.refuse()


def _appended(output: ir.Value | None) -> ir.Value | None:
    node = producer(output, "Concat")
    while node is None and output is not None and producer(output, "Identity") is not None:
        output = producer(output, "Identity").inputs[0]  # type: ignore[union-attr]
        node = producer(output, "Concat")
    return node.inputs[-1] if node is not None else None
