"""One pass over an entry's graph: nodes in order become kernel calls over regions."""

from __future__ import annotations

import math

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.entry import EntryGraph, StateSpec
from npuc.lower import views
from npuc.lower.consts import ConstPool
from npuc.lower.context import KernelCall, Lowering, output_dtype, static_shape, value_type
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.gated import find_gated, lower_gated
from npuc.lower.groups import group_nodes, lower_group, members_of
from npuc.lower.hosted import host_hint
from npuc.lower.library import Library
from npuc.lower.limits import broken
from npuc.lower.new_rows import append, filled_rows, state_dtype, storing_nodes, whole_state
from npuc.lower.onto import find_onto, lower_onto
from npuc.lower.precise import precise_values
from npuc.lower.residual import lower_norm_of_sum, norm_of_sum
from npuc.lower.routing import find_routes, lower_route
from npuc.lower.rules import RULES
from npuc.lower.rules.bound import bound_op
from npuc.lower.storage import Storage, UnsupportedType
from npuc.tasks import Buffer, Region, Role
from npurt.target.model import Target

STEP_INPUTS = ("n_past", "n_new")  # graph inputs that the step block carries; no buffer of their own

MAX_ELEMENTS = 2**31 - 1


def state_buffers(states: list[StateSpec], storage: Storage) -> dict[str, Buffer]:
    """STATE buffers by id, shared by all entries. Floats are stored as `--precision` says, integers as int32."""
    buffers = {}
    for state in states:
        nbytes = math.prod(state.shape) * state_dtype(state, storage).nbytes
        buffers[state.id] = Buffer(f"state.{state.id}", "ddr", nbytes, Role.STATE)
    return buffers


def walk(entry: EntryGraph, states: list[StateSpec], buffers: dict[str, Buffer], storage: Storage, consts: ConstPool,
         ddr_values: frozenset[str], on_chip: str, library: Library, target: Target) -> list[KernelCall]:  # fmt: skip
    """The entry's kernel calls in order, with LOCAL buffers for its intermediate values.

    Raises LoweringRefused with every node that no rule takes; a fault that layers share is told once.
    """
    graph = entry.model.graph
    _check_sizes(graph)
    nodes = list(graph)
    checked = entry.name in ("prefill", "generate")
    low = Lowering(entry.label, storage, consts, ddr_values, on_chip, checked, target, precise_values(nodes),
                   frozenset(library.kernels))  # fmt: skip
    try:
        _bind_inputs(low, entry, states, buffers)
        _bind_outputs(low, graph, states)
    except UnsupportedType as error:
        raise LoweringRefused([f"a graph input or output: {error}"]) from error
    groups = group_nodes(nodes, frozenset(graph.outputs), frozenset(library.ops))
    grouped = members_of(groups)
    stores = storing_nodes(graph, states)
    filled = filled_rows(entry, states)
    position = {node: place for place, node in enumerate(nodes)}
    gated = find_gated(groups)
    onto = find_onto(low, groups)
    done = {node for layer in gated.values() for node in layer.products} | {sum_.product for sum_ in onto.values()}
    routes = {route.nodes[0]: route for route in find_routes(nodes, groups)}
    routed = {node for route in routes.values() for node in route.nodes}
    given = set(graph.outputs) - low.direct.keys() - {v for v in graph.outputs if v.name in _next_names(states)}
    copied: set[ir.Value] = set()
    problems = Problems()
    for node in nodes:
        reasons = list(broken(node))
        for reason in reasons:
            problems.add(f"{describe(node)}: {reason}{host_hint(entry, node)}")
        if reasons:
            continue
        try:
            own = node in groups and node not in onto and node not in routed
            norm = norm_of_sum(groups[node], position) if own else None
            if node in routes:
                lower_route(low, routes[node])
            elif node in routed:
                pass  # lowered with the first of its routing
            elif norm is not None:
                lower_norm_of_sum(low, groups[node], norm)
                done.add(norm)
            elif node in gated:
                lower_gated(low, gated[node])
            elif node in onto:
                lower_onto(low, onto[node])
            elif node in groups:
                lower_group(low, groups[node])
            elif node not in grouped and node not in done:
                bound = (node.domain, node.op_type) in library.ops
                rule = bound_op if bound else RULES.get((node.domain, node.op_type))
                if rule is None:
                    problems.add(f"{describe(node)}: there is no kernel for this op{host_hint(entry, node)}")
                    continue
                rule(low, node)
            for state, value in stores.get(node, ()):
                if value in low.at:
                    append(low, state, low.at[value], buffers[state.id], filled)
            for value in node.outputs:
                if value in given and value in low.at:  # read by others, too: need not wait on the chip either
                    _copy_out(low, value, low.at[value])
                    copied.add(value)
        except LoweringRefused as refused:
            for problem in refused.problems:
                problems.add(problem)
        except UnsupportedType as error:
            problems.add(f"{describe(node)}: {error}")
        except KeyError:
            if not problems:  # a consumer of a value that a refused node did not make
                raise
        except AssertionError:
            if not problems:
                raise
    if problems:
        raise LoweringRefused(problems.messages())
    try:
        _finish(low, graph, states, buffers, copied, filled)
    except UnsupportedType as error:
        raise LoweringRefused([f"a graph output: {error}"]) from error
    return low.calls


def _check_sizes(graph: ir.Graph) -> None:
    """LoweringRefused for a value of more elements than a record of the device can count."""
    for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
        elements = 0 if value.shape is None else math.prod(static_shape(value))
        if elements > MAX_ELEMENTS:
            what = f"{value.name!r} of shape {list(static_shape(value))} has {elements} elements"
            raise LoweringRefused([f"{what}, a value may have {MAX_ELEMENTS}"])


def _bind_inputs(low: Lowering, entry: EntryGraph, states: list[StateSpec], buffers: dict[str, Buffer]) -> None:
    by_input = {state.input: state for state in states if state.input is not None}
    for value in entry.model.graph.inputs:
        if value.name in STEP_INPUTS or value.const_value is not None:
            continue
        shape = static_shape(value)
        state = by_input.get(str(value.name))
        if state is None:
            dtype = low.storage.of(value_type(value))
            buffer = Buffer(f"{low.entry}.in.{value.name}", "ddr", math.prod(shape) * dtype.nbytes, Role.INPUT)
            low.at[value] = Region(buffer, 0, dtype, shape, views.contiguous_strides(shape, dtype.nbytes))
            continue
        dtype = state_dtype(state, low.storage)
        # an entry reads only its own capacity of the state, with the strides of the physical rows
        stride = views.contiguous_strides(state.shape, dtype.nbytes)
        low.at[value] = Region(buffers[state.id], 0, dtype, shape, stride)


def _bind_outputs(low: Lowering, graph: ir.Graph, states: list[StateSpec]) -> None:
    next_values = _next_names(states)
    for value in graph.outputs:
        if value.name in next_values:
            continue
        once = sum(1 for other in graph.outputs if other is value) == 1
        if once and not value.uses() and value.producer() is not None:
            low.direct[value] = _output(low, value)


def _next_names(states: list[StateSpec]) -> set[str]:
    return {state.output for state in states if state.output is not None}


def _output(low: Lowering, value: ir.Value) -> Buffer:
    nbytes = math.prod(static_shape(value)) * output_dtype(low.storage, value).nbytes
    return Buffer(f"{low.entry}.out.{value.name}", "ddr", nbytes, Role.OUTPUT)


def _copy_out(low: Lowering, value: ir.Value, region: Region) -> None:
    """A copy of a value to its place among the outputs."""
    dtype, shape = output_dtype(low.storage, value), static_shape(value)
    buffer = low.direct.get(value) or _output(low, value)
    target = Region(buffer, 0, dtype, shape, views.contiguous_strides(shape, dtype.nbytes))
    _copy(low, str(value.name), region, target)


def _finish(low: Lowering, graph: ir.Graph, states: list[StateSpec], buffers: dict[str, Buffer],
            copied: set[ir.Value], filled: dict[str, int]) -> None:  # fmt: skip
    """Outputs that are not in their place yet, then the states: all are read before any is written."""
    by_output = {state.output: state for state in states if state.output is not None}
    for value in graph.outputs:
        region = low.region(value)
        in_place = value in low.direct and region.buffer is low.direct[value]
        if value.name not in by_output and value not in copied and not in_place:
            _copy_out(low, value, region)
    writes: list[tuple[StateSpec, Region]] = []
    for value in graph.outputs:
        state = by_output.get(str(value.name))
        if state is None or (state.gains_rows and value.producer() is not None):
            continue
        region = low.region(value)
        whole = buffers[state.id]
        if not state.gains_rows and region.buffer is whole:
            continue  # passes through
        if region.buffer.role is Role.STATE:  # swapped variables: keep the old value until all are read
            kept = low.temporary(f"{value.name}.kept", region.shape, region.dtype)
            _copy(low, str(value.name), region, kept)
            region = kept
        writes.append((state, region))
    for state, region in writes:
        if state.gains_rows:
            append(low, state, region, buffers[state.id], filled)
        else:
            _copy(low, f"next.{state.id}", region, whole_state(low, state, buffers[state.id]))


def _copy(low: Lowering, name: str, source: Region, target: Region) -> None:
    node = ir.Node("", "Identity", inputs=[], name=name)
    low.copy(node, source, target)
