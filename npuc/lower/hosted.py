"""`--host-ops`: cuts a static graph at the nodes that the host is to compute, into entries with steps between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.entry import EntryGraph, ModelGraphs, PortSpec
from npuc.graph.nodes import attributes, dims
from npuc.graph.options import OptionError
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.expression import ELEMENTWISE
from npuc.lower.limits import broken
from npuc.lower.rules import RULES
from npuc.report.metadata import GRAPH_TYPES
from npurt.host.op import StepFault
from npurt.host.program import DTYPES
from npurt.host.table import HOST_OPS, check_step

ALL = "all"
RESIZE_OPERANDS = {2: "scales", 3: "sizes"}
"""Inputs of Resize that are attributes of its host step; the first two inputs are x and roi."""
RESIZE_UNUSED = ("cubic_coeff_a", "extrapolation_value")
"""Attributes of Resize that only modes have that the host does not compute."""


@dataclass(frozen=True)
class HostCut:
    """A graph that is cut. parts: the entries for the device. host: names of the nodes that the host computes.

    metadata: the object that `npurt.host.program` reads. constants: what its steps read beside values. lines: for the
    report.
    """

    parts: list[EntryGraph]
    host: frozenset[str]
    metadata: dict[str, Any]
    constants: bytes
    lines: list[str]


def check_asked(asked: Sequence[str]) -> None:
    """OptionError for an operator that the host cannot compute."""
    unknown = [name for name in asked if name != ALL and name not in HOST_OPS]
    if unknown:
        raise OptionError(f"--host-ops {', '.join(unknown)}: the host computes {', '.join(HOST_OPS)}")


def host_hint(entry: EntryGraph, node: ir.Node) -> str:
    """What a refusal of a plain graph's node says more where the host could compute it."""
    possible = entry.name == "main" and not node.domain and node.op_type in HOST_OPS
    return f"; --host-ops {node.op_type} computes it on the host" if possible else ""


def cut_for_host(graphs: ModelGraphs, asked: Sequence[str], bound: Collection[tuple[str, str]]) -> HostCut | None:
    """The cut of a plain graph at the nodes of the operators `asked` that the device has no kernel for; None where
    there are none. bound: operators that the caller's kernels compute.

    Raises OptionError for an operator that the host does not have, LoweringRefused for a graph that cannot be cut or a
    node that the host does not compute either.
    """
    check_asked(asked)
    chosen = [node for entry in graphs.entries for node in entry.model.graph if _is_for_host(node, asked, bound)]
    if not chosen:
        return None
    first = f"{describe(chosen[0])}: --host-ops"
    if graphs.llm is not None:
        raise LoweringRefused([f"{first} needs a plain graph, and this is a language model's"])
    if graphs.states or len(graphs.entries) > 1:
        raise LoweringRefused([f"{first} needs a graph without states"])
    entry = graphs.entries[0]
    host = frozenset(str(node.name) for node in chosen)
    stages = _stages(entry.model.graph, host)
    constants = _Constants()
    problems = Problems()
    steps: list[dict[str, Any]] = []
    parts: list[EntryGraph] = []
    for stage in range(max(stages.values()) + 1):
        own = [node for node in entry.model.graph if stages[node] == stage]
        device = [str(node.name) for node in own if node.name not in host]
        if device:
            part = _part(replace(entry, part=len(parts)), frozenset(device))
            parts.append(part)
            steps.append({"entry": part.label})
        for node in own:
            if node.name in host:
                try:
                    steps.append(_step(node, constants))
                except StepFault as fault:
                    problems.add(f"{describe(node)}: the host does not compute it: {fault}")
    if problems:
        raise LoweringRefused(problems.messages())
    if not parts:
        raise LoweringRefused([f"{first} leaves nothing of the graph for the device"])
    metadata = {
        "name": entry.label, "inputs": [_port(port) for port in entry.inputs],
        "outputs": [_port(port) for port in entry.outputs], "steps": steps,
    }  # fmt: skip
    lines = [f"{entry.label}: node {node.name} ({node.op_type}) runs on the host" for node in chosen]
    return HostCut(parts, host, metadata, bytes(constants.content), lines)


def _is_for_host(node: ir.Node, asked: Sequence[str], bound: Collection[tuple[str, str]]) -> bool:
    key = (node.domain, node.op_type)
    if node.domain or node.op_type not in HOST_OPS or not (ALL in asked or node.op_type in asked) or key in bound:
        return False
    return node.op_type not in ELEMENTWISE and (key not in RULES or any(broken(node)))


def _stages(graph: ir.Graph, host: Collection[str]) -> dict[ir.Node, int]:
    """For each node the turn in which it runs: in each turn the device is first, then the host."""
    stages: dict[ir.Node, int] = {}
    for node in graph:
        before = [producer for value in node.inputs if value is not None and (producer := value.producer()) is not None]
        on_device = node.name not in host
        stages[node] = max((stages[p] + int(on_device and p.name in host) for p in before), default=0)
    return stages


def _part(entry: EntryGraph, names: Collection[str]) -> EntryGraph:
    """The entry with these nodes alone; what they read of others is an input, what others read of them an output."""
    model = entry.model.clone()
    graph = model.graph
    kept = [node for node in graph if node.name in names]
    given = {
        value: None for node in kept for value in node.inputs
        if value is not None and value.const_value is None and value.producer() not in kept
    }  # fmt: skip
    results = set(graph.outputs)
    made = [
        value for node in kept for value in node.outputs
        if value in results or any(use.node not in kept for use in value.uses())
    ]  # fmt: skip
    graph.outputs.clear()
    fresh = {old: ir.Value(name=old.name, shape=old.shape, type=old.type) for old in given}
    for node in kept:
        for place, value in enumerate(node.inputs):
            if value in fresh:
                node.replace_input_with(place, fresh[value])
    graph.remove([node for node in graph if node not in kept], safe=True)
    graph.inputs.clear()
    graph.inputs.extend(fresh.values())
    graph.outputs.extend(made)
    for name in [name for name, value in graph.initializers.items() if not value.uses()]:
        del graph.initializers[name]
    ports = [[_spec(value) for value in values] for values in (graph.inputs, graph.outputs)]
    return replace(entry, model=model, inputs=ports[0], outputs=ports[1])


def _spec(value: ir.Value) -> PortSpec:
    assert value.dtype is not None, "values of a static graph are typed"
    return PortSpec(value.name or "", dims(value), int(value.dtype))


def _port(port: PortSpec) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.shape), "graph_dtype": GRAPH_TYPES.get(port.onnx_dtype, "")}


class _Constants:
    """Constants of the steps, one after the other."""

    def __init__(self) -> None:
        self.content = bytearray()

    def add(self, array: np.ndarray, label: str) -> dict[str, Any]:
        if label not in DTYPES:
            raise StepFault(f"a constant of type {label}")
        place = len(self.content)
        self.content += np.ascontiguousarray(array, DTYPES[label]).tobytes()
        return {"constant": place, "shape": list(array.shape), "graph_dtype": label}


def _step(node: ir.Node, constants: _Constants) -> dict[str, Any]:
    """A node as a step of the metadata. StepFault where the host does not compute it."""
    given = _attributes(node)
    count = 1 if node.op_type == "Resize" else len(node.inputs)
    values = [value for value in node.inputs[:count] if value is not None]
    specs = [_spec(value) for value in values]
    labels = [GRAPH_TYPES.get(spec.onnx_dtype, "") for spec in specs]
    output = _port(_spec(node.outputs[0]))
    shape = check_step(node.op_type, given, labels, [spec.shape for spec in specs])
    if list(shape) != output["shape"] or output["graph_dtype"] != labels[0]:
        raise StepFault(f"its result is {output['graph_dtype']}{output['shape']}, the host's {labels[0]}{list(shape)}")
    inputs = [
        {"value": value.name} if value.const_value is None else constants.add(value.const_value.numpy(), label)
        for value, label in zip(values, labels, strict=True)
    ]
    return {"op": node.op_type, "node": node.name, "attributes": given, "inputs": inputs, "output": output}


def _attributes(node: ir.Node) -> dict[str, Any]:
    """Attributes as JSON has them; of Resize the constant operands, too."""
    found: Mapping[str, Any] = attributes(node)
    given = {name: _plain(value) for name, value in sorted(found.items())}
    if node.op_type != "Resize":
        return given
    for place, name in RESIZE_OPERANDS.items():
        value = node.inputs[place] if place < len(node.inputs) else None
        if value is None:
            continue
        if value.const_value is None:
            raise StepFault(f"its {name} must be constants")
        numbers = value.const_value.numpy()
        if numbers.size:
            given[name] = numbers.tolist()
    return {name: value for name, value in given.items() if name not in RESIZE_UNUSED}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if isinstance(value, tuple | list) else value
