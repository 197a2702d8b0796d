"""`npuc compile --report`: what became of every node of the model, in each entry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir

from npuc.emit.atomic import atomic_file
from npuc.graph.entry import EntryGraph
from npuc.lower.entry import Lowered
from npuc.lower.expression import ELEMENTWISE
from npuc.lower.hosted import HostCut
from npuc.lower.rules.table import ELEMENTWISE_FAMILY, FAMILY_OF
from npuc.report.trail import Given, Trail, standing, stands_for
from npuc.tasks import CallOp, MmaOp, TaskGraph

FORMAT = 1

# What it means that a node is lost at a step of the graph: (fate, reason).
LOST = {
    "state": ("dropped", "state: a value of the program that is kept from run to run"),
    "bodies": ("dropped", "nobody reads it"),
    "normalise": ("dropped", "hands on its input as it is"),
    "weights": ("folded", "its weight is dequantised by the compiler"),
    "expand": ("dropped", "nobody reads it"),
    "measure": ("dropped", "nobody reads it"),
    "static": ("dropped", "nobody reads it"),
    "recognise": ("dropped", "positions, masks and counts: npuc makes them from n_past"),
    "fold": ("folded", "follows from constants and sizes"),
    "codes": ("dropped", "hands on its input as it is"),
    "cut": ("elsewhere", "not in this entry: body and head are entries of their own, caches give their new rows alone"),
    "clean": ("dropped", "changes nothing, or computes what another node computes"),
    "tidy": ("dropped", "changes nothing, or computes what another node computes"),
    "caches": ("dropped", "nobody reads it"),
    "ports": ("dropped", "nobody reads it"),
}
FUSED = ("fused", "taken into the node that a fusion rule made")
CONSTANT = ("folded", "a constant")


@dataclass(frozen=True)
class Call:
    """A kernel over a node's arrays. tiles: the tile sizes that were chosen. why: this kernel, where there was a
    choice."""

    kernel: str
    tiles: Mapping[str, Any]
    why: str


@dataclass(frozen=True)
class Row:
    """One node of the model in one entry.

    fate: "kernel" (its own), "view" (moves nothing), "fused" (into the nodes `into`), "written out" (as the nodes
    `into`), "host", "folded", "dropped" or "elsewhere". engine: DMA, DPU or SHAVE, whatever does most of it, or host;
    "" where nothing runs. reason: for people.
    """

    node: str
    op: str
    fate: str
    engine: str
    calls: tuple[Call, ...]
    into: tuple[str, ...]
    reason: str


def write_node_report(path: Path, trail: Trail, entries: Sequence[EntryGraph], lowered: Sequence[Lowered],
                      host: HostCut | None, target: str, precision: str) -> None:  # fmt: skip
    """Writes the report whole or not at all. Errors: OSError."""
    text = json.dumps(node_report(trail, entries, lowered, host, target, precision), indent=1)
    with atomic_file(path) as file:
        file.write(text.encode() + b"\n")


def node_report(trail: Trail, entries: Sequence[EntryGraph], lowered: Sequence[Lowered], host: HostCut | None,
                target: str, precision: str) -> dict[str, Any]:  # fmt: skip
    """The report as a JSON object: every node of the model in every entry; parts between host steps are one entry."""
    pairs = list(zip(entries, lowered if host is None else [_joined(entries[0], lowered)], strict=True))
    on_host = frozenset[str]() if host is None else host.host
    return {
        "format": FORMAT,
        "target": target,
        "precision": precision,
        "entries": [
            {
                "entry": entry.label, "rows": entry.rows, "capacity": entry.capacity, "tasks": len(done.graph.tasks),
                "nodes": [asdict(row) for row in _rows(trail, entry, done, on_host)],
            }
            for entry, done in pairs
        ],
    }  # fmt: skip


def _joined(entry: EntryGraph, parts: Sequence[Lowered]) -> Lowered:
    """All parts of an entry as one."""
    tasks = [task for part in parts for task in part.graph.tasks]
    choices = [choice for part in parts for choice in part.choices]
    values = tuple(name for part in parts for name in part.ddr_values)
    return Lowered(TaskGraph(entry.label, tasks, entry.rows, entry.capacity), choices, values)


def _rows(trail: Trail, entry: EntryGraph, lowered: Lowered, on_host: frozenset[str]) -> Iterator[Row]:
    graph = entry.model.graph
    calls, engines = _calls(lowered), _engines(lowered)
    made: dict[str, list[ir.Node]] = {}
    for name, node in standing(graph):
        made.setdefault(name, []).append(node)
    for given in trail.given:
        nodes = made.get(given.name)
        if nodes and any(node.name in on_host for node in nodes):
            into = tuple(str(node.name) for node in nodes if node.name != given.name)
            yield Row(given.name, _op(given), "host", "host", (), into, "there is no kernel; --host-ops asked for it")
            continue
        if nodes:
            yield _kept(given, nodes, calls, engines)
            continue
        step = trail.step_of(entry.label, given.name) or "cut"
        if step not in LOST:  # a fusion rule took it into what read it
            heirs = trail.heirs.get(entry.label, {}).get(given.name, [])
            nodes = list({node: None for heir in heirs for node in made.get(heir, ())})
            if nodes:
                yield _kept(given, nodes, calls, engines)
                continue
        fate, reason = LOST.get(step, FUSED)
        if given.op_type == "Constant" and given.domain == "":
            fate, reason = CONSTANT
        yield Row(given.name, _op(given), fate, "", (), (), reason)


def _kept(given: Given, nodes: list[ir.Node], calls: Mapping[str, list[Call]], engines: Mapping[str, str]) -> Row:
    """A node for which nodes of the entry stand."""
    own = [n for n in nodes if n.name == given.name and (n.domain, n.op_type) == (given.domain, given.op_type)]
    if not own:
        hosts = {host: None for node in nodes for host in [_host(node, calls)] if host is not None}
        into = tuple(f"{node.name}" for node in hosts) or tuple(str(node.name) for node in nodes)
        what = ", ".join(dict.fromkeys(_op(node) for node in nodes))
        shared = any(len(set(stands_for(node))) > 1 for node in nodes)
        fate, verb = ("fused", "fused into") if shared else ("written out", "written as")
        running = next((engines[name] for name in into if name in engines), "")
        found = tuple(call for name in into for call in calls.get(name, ()))
        return Row(given.name, _op(given), fate, running, found, into, f"{verb} {what}")
    node = own[0]
    found = tuple(calls.get(given.name, ()))
    if found:
        engine = engines[given.name]
        return Row(given.name, _op(given), "kernel", engine, found, (), f"{engine}: {_why(node)}")
    host = _host(node, calls)
    if host is None or _moves(node):
        return Row(given.name, _op(given), "view", "", (), (), "only moves data, and a view says where it lies")
    reason = f"fused into {_op(host)} of node {host.name}"
    name = str(host.name)
    return Row(given.name, _op(given), "fused", engines[name], tuple(calls[name]), (name,), reason)


def _host(node: ir.Node, calls: Mapping[str, list[Call]]) -> ir.Node | None:
    """The node itself, or the first behind it, that a kernel was called for."""
    seen, queue = {node}, [node]
    while queue:
        current = queue.pop(0)
        if current.name in calls:
            return current
        for output in current.outputs:
            for use in output.uses():
                if use.node not in seen:
                    seen.add(use.node)
                    queue.append(use.node)
    return None


def _moves(node: ir.Node) -> bool:
    family = FAMILY_OF.get((node.domain, node.op_type))
    return node.op_type == "Identity" or (family is not None and family.engine == "DMA")


def _why(node: ir.Node) -> str:
    if node.domain == "" and node.op_type in ELEMENTWISE:
        return ELEMENTWISE_FAMILY.why
    family = FAMILY_OF.get((node.domain, node.op_type))
    return family.why if family is not None else "a kernel of its own"


def _op(node: Given | ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _calls(lowered: Lowered) -> dict[str, list[Call]]:
    """Kernel calls by the node that they are for; equal ones once."""
    found: dict[str, list[Call]] = {}
    for call, choice in lowered.choices:
        tiles = {name: value for name, value in choice.params.items() if isinstance(value, int | str | bool | tuple)}
        row = Call(choice.kernel, tiles, "" if call.way is None else call.way.why)
        if row not in found.setdefault(call.node, []):
            found[call.node].append(row)
    return found


def _engines(lowered: Lowered) -> dict[str, str]:
    """What does most of each node's work: the DPU where it has tasks, else SHAVE, else DMA."""
    order = ("DMA", "SHAVE", "DPU")
    best: dict[str, int] = {}
    for task in lowered.graph.tasks:
        engine = "DPU" if isinstance(task.op, MmaOp) else "SHAVE" if isinstance(task.op, CallOp) else "DMA"
        best[task.origin.node] = max(best.get(task.origin.node, 0), order.index(engine))
    return {node: order[value] for node, value in best.items()}
