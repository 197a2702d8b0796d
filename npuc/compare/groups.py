"""Node groups of an entry: each value that the device stores, its kernel, and the nodes behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from npuc.graph.entry import EntryGraph, PortSpec, StateSpec
from npuc.graph.nodes import SOURCE, dims
from npuc.lower.context import KernelCall
from npuc.lower.entry import Lowered
from npuc.lower.fit import Choice
from npuc.lower.groups import Group as Chain
from npuc.lower.groups import group_nodes
from npuc.report.metadata import GRAPH_TYPES
from npuc.tasks import Region, Role


@dataclass(frozen=True)
class Group:
    """A value that the device stores.

    state: id of the state that holds it, or None. node, op: what makes it. kernels: with their tile sizes, in the order
    of the calls. engines: of their tasks. sources: the exporter's nodes. dtype: on the device.
    """

    value: str
    state: str | None
    node: str
    op: str
    kernels: tuple[str, ...]
    engines: tuple[str, ...]
    sources: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str


Call = tuple[KernelCall, Choice]


def find_groups(entry: EntryGraph, states: Sequence[StateSpec], lowered: Lowered) -> list[Group]:
    """The groups of an entry in the order in which the device computes them."""
    graph = entry.model.graph
    made = {output.name or "": output for node in graph for output in node.outputs}
    order = {name: place for place, name in enumerate(made)}
    chains = group_nodes(list(graph), frozenset(graph.outputs))
    kept = {state.output: state.id for state in states if state.output is not None}
    engines: dict[str, dict[str, None]] = {}
    for task in lowered.graph.tasks:
        engines.setdefault(task.origin.node, {}).setdefault(task.engine)
    found: dict[str, Group] = {}
    for call, _ in lowered.choices:
        names = {_value_of(region, entry.label, call.node): region for region in call.arrays if region is not None}
        for name in sorted((n for n in names if n in made), key=order.__getitem__):
            if name in found or (name in kept and call.node != f"next.{kept[name]}"):
                continue  # a state's new rows are read from the state, once they have got there
            found[name] = _group(made[name], names[name], kept.get(name), call, lowered.choices, chains, engines)
    return list(found.values())


def _value_of(region: Region, label: str, node: str) -> str:
    """Name of the graph value that a buffer stands for."""
    buffer = region.buffer
    if buffer.role is Role.OUTPUT:
        return buffer.name.removeprefix(f"{label}.out.")
    if buffer.role is Role.STATE:
        return node if buffer.name.removeprefix("state.") == node.removeprefix("next.") else ""
    return buffer.name if buffer.role is Role.LOCAL else ""


def _group(
    value: ir.Value, region: Region, state: str | None, call: KernelCall, calls: Sequence[Call],
    chains: Mapping[ir.Node, Chain], engines: Mapping[str, Mapping[str, None]],
) -> Group:  # fmt: skip
    node = value.producer()
    assert node is not None
    members = chains[node].nodes if node in chains else (node,)
    names = {call.node, *(member.name or "" for member in members)}
    kernels = {_described(each, choice): None for each, choice in calls if each.node in names}
    used = {engine: None for each in calls if each[0].node in names for engine in engines.get(each[0].node, ())}
    sources = {
        name: None for each in members for name in each.metadata_props.get(SOURCE, each.name or "").split(";") if name
    }
    op = " + ".join(f"{each.domain}.{each.op_type}" if each.domain else each.op_type for each in members)
    return Group(
        value.name or "", state, node.name or "", op, tuple(kernels), tuple(used), tuple(sources), dims(value),
        region.dtype.label,
    )  # fmt: skip


def _described(call: KernelCall, choice: Choice) -> str:
    sizes = [f"{name}={value}" for name, value in choice.params.items() if isinstance(value, int | str)]
    return f"{call.kernel}({', '.join(sizes)})" if sizes else call.kernel


def probed(entry: EntryGraph, groups: Sequence[Group]) -> EntryGraph:
    """The entry with every group's value among its outputs, so that the device writes it where it can be read."""
    model = entry.model.clone()
    made = {output.name: output for node in model.graph for output in node.outputs}
    held = {value.name for value in model.graph.outputs}
    outputs = list(entry.outputs)
    for group in groups:
        value = made[group.value]
        if group.state is None and group.value not in held and value.dtype in GRAPH_TYPES:
            model.graph.outputs.append(value)
            outputs.append(PortSpec(group.value, group.shape, int(value.dtype)))
    return replace(entry, model=model, outputs=outputs)
