"""The last touch on an entry: inputs and outputs in their order and under their names, and the records about them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from npuc.graph.entry import EntryGraph, PortSpec
from npuc.graph.nodes import dims, fresh_name
from npuc.graph.static import N_NEW, N_PAST, Draft

IDS = "input_ids"


def name_outputs(draft: Draft) -> None:
    """Gives every graph output the name in `draft.outputs`; one that has another role gets an Identity of its own,
    an input that is passed through as it is excepted."""
    graph = draft.graph
    wanted = set(draft.outputs)
    taken: set[ir.Value] = set()
    for index, name in enumerate(draft.outputs):
        value = graph.outputs[index]
        if value.is_graph_input() and value.name == name:
            continue  # it passes through, and one name cannot be made a second time
        if value.producer() is None or value in taken:
            copy = ir.Value(name=None, shape=value.shape, type=value.type)
            node = ir.Node("", "Identity", [value], outputs=[copy], name=fresh_name(graph, f"{name}~Identity"))
            graph.append(node)
            graph.outputs[index] = value = copy
        taken.add(value)
    for value in [v for v in graph.initializers.values() if v.name in wanted]:
        del graph.initializers[value.name or ""]
        value.name = fresh_name(graph, f"inner~{value.name}")
        graph.register_initializer(value)
    for node in graph:
        for output in node.outputs:
            if output.name in wanted:
                output.name = fresh_name(graph, f"inner~{output.name}")
    for name, value in zip(draft.outputs, graph.outputs, strict=True):
        value.name = name


def order_inputs(draft: Draft, ids: str, states: Sequence[str]) -> None:
    """Inputs of a body: token ids, n_past, n_new, then the states in their order."""
    by_name = {value.name: value for value in draft.graph.inputs}
    by_name[ids].name = IDS
    ordered = [by_name[ids], by_name[N_PAST], by_name[N_NEW], *(by_name[name] for name in states if name in by_name)]
    draft.graph.inputs.clear()
    draft.graph.inputs.extend(ordered)


def entry_graph(draft: Draft) -> EntryGraph:
    """The finished entry."""
    return EntryGraph(
        draft.name, draft.rows, draft.capacity, draft.model, _ports(draft.graph.inputs), _ports(draft.graph.outputs)
    )


def _ports(values: Sequence[ir.Value]) -> list[PortSpec]:
    result = []
    for value in values:
        assert value.dtype is not None
        result.append(PortSpec(value.name or "", dims(value), int(value.dtype)))
    return result
