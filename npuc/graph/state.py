"""State first: what a graph keeps from one run to the next leaves the graph before any pass can touch it.

A stock pass does not know that a ReadValue gives the value before the run, or that an Assign nobody reads still
matters. So both forms in which models come, ReadValue/Assign and pairs of an input and an output, become one: a pure
function with an input `state.<id>` and an output `next.<id>` for each state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.infer import infer
from npuc.graph.branches import flatten
from npuc.graph.cleanup import name_nodes
from npuc.graph.edit import Names, cloned
from npuc.graph.state_class import StateClass, classify
from npuc.graph.state_declare import DOMAIN, Variable, collect_variables, is_state_node
from npuc.graph.state_info import StateInfo
from npuc.graph.state_pairs import NEXT_PREFIX, READ_PREFIX, Pair, find_pairs, keep_inner_type, rename_pair
from npuc.graph.state_variables import claim, replace_variable
from npuc.graph.state_write import pairs_to_state
from npuc.graph.tokens import ids_input

__all__ = ["PureModel", "StateClass", "StateInfo", "classify", "pairs_to_state", "state_to_arguments"]


class PureModel(NamedTuple):
    """A graph without state, and the states that became its arguments, in the order of their first appearance."""

    model: ir.Model
    states: list[StateInfo]


def state_to_arguments(
    model: ir.Model, state_rows: Mapping[str, int] | None = None, kept_ops: frozenset[tuple[str, str]] = frozenset()
) -> PureModel:
    """The pure function of a model: a new model; the given one stays as it is.

    state_rows: largest extent of growing states by id, for graphs that are no decoders (there the cache capacity
    bounds them). kept_ops: functions that are not written out. Raises ModelRefused with every broken rule at once.
    """
    pure, problems = cloned(model), Problems()
    flatten(pure, kept_ops)
    name_nodes(pure)
    variables: list[Variable] = []
    if any(is_state_node(node) for node in pure.graph.all_nodes()):
        variables = collect_variables(pure, infer(pure, Problems()), problems)
    pairs = find_pairs(pure)
    names = Names(pure.graph)
    for variable in variables:
        for prefix, used in ((READ_PREFIX, bool(variable.reads)), (NEXT_PREFIX, variable.assign is not None)):
            if used:
                claim(pure.graph, prefix + variable.id, variable.id, names, problems)
    for pair in pairs:
        for prefix, value in ((READ_PREFIX, pair.before), (NEXT_PREFIX, pair.after)):
            if value.name != prefix + pair.id:
                claim(pure.graph, prefix + pair.id, pair.id, names, problems)
    problems.refuse()
    states = [_from_pair(pure.graph, pair, names) for pair in pairs]
    states += [_from_variable(pure.graph, variable, names) for variable in variables]
    if DOMAIN in pure.opset_imports and not any(node.domain == DOMAIN for node in pure.graph.all_nodes()):
        del pure.opset_imports[DOMAIN]
    return PureModel(pure, _bounded(states, ids_input(pure) is not None, dict(state_rows or {})))


def _from_pair(graph: ir.Graph, pair: Pair, names: Names) -> StateInfo:
    aliases = (pair.before.name or "", pair.after.name or "")
    before, after = rename_pair(graph, pair, names)
    shape = tuple(d if isinstance(d, int) else -1 for d in before.shape) if before.shape is not None else ()
    dtype = int(before.dtype) if before.dtype is not None else int(ir.DataType.UNDEFINED)
    maker = after.producer()
    nodes = (maker.name or "",) if maker is not None else ()
    return StateInfo(pair.id, dtype, shape, pair.growing_axis, None, before.name, after.name, "pair", nodes, aliases)


def _from_variable(graph: ir.Graph, variable: Variable, names: Names) -> StateInfo:
    values = [n.outputs[0] for n in variable.reads] + (
        [variable.assign.inputs[0]] if variable.assign is not None else []
    )
    aliases = tuple(v.name or "" for v in values if v is not None)
    own = set(variable.nodes)
    nodes = tuple(node.name or "" for node in graph if node in own)
    before, after = replace_variable(graph, variable, names)
    return StateInfo(
        variable.id,
        _inner_type(graph, variable, before, after, names),
        variable.shape,
        variable.growing_axis,
        variable.initial,
        before,
        after,
        "variable",
        nodes,
        aliases,
    )


def _inner_type(graph: ir.Graph, variable: Variable, before: str | None, after: str | None, names: Names) -> int:
    """The element type of a variable in the graph: a narrower one than declared where that is what it ever holds."""
    starts_empty = variable.growing_axis is not None and (variable.initial is None or not variable.initial.size)
    if before is None or after is None or not starts_empty:
        return variable.dtype
    given = next(value for value in graph.inputs if value.name == before)
    result = keep_inner_type(graph, given, next(value for value in graph.outputs if value.name == after), names)
    result.name = after
    return variable.dtype if given.dtype is None else int(given.dtype)


def _bounded(states: list[StateInfo], is_decoder: bool, rows: dict[str, int]) -> list[StateInfo]:
    """The states with the user's bounds. In a decoder the capacity bounds them; elsewhere a growing state needs one."""
    problems, result = Problems(), []
    for state in states:
        bound = rows.pop(state.id, None) if state.growing_axis is not None else None
        start = 0 if state.initial is None or state.growing_axis is None else state.initial.shape[state.growing_axis]
        if is_decoder and start:
            problems.add(
                f"state {state.id!r} starts with {start} rows; a growing state of a decoder starts without any"
            )
        if state.growing_axis is not None and not is_decoder and bound is None:
            problems.add(
                f"state {state.id!r} grows along axis {state.growing_axis} and nothing bounds it: "
                f"give its largest extent, --state-rows {state.id}=N"
            )
        if bound is not None and bound < max(start, 1):
            problems.add(f"--state-rows {state.id}={bound}: at least {max(start, 1)} are needed")
        result.append(replace(state, max_rows=bound))
    growing = ", ".join(s.id for s in states if s.growing_axis is not None) or "none"
    for key in rows:
        problems.add(f"--state-rows {key}: no growing state has this name (those that grow: {growing})")
    problems.refuse()
    return result
