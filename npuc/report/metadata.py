"""The .npu.meta object: what a session must know of a program beyond its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npuc.emit.errors import EmitError
from npuc.graph.entry import EntryGraph, LlmInfo, PortSpec, StateSpec
from npuc.tasks.graph import Role
from npuc.tasks.program import EntryProgram
from npurt.abi.dtypes import DType

FORMAT = 1
STEP_INPUTS = ("n_past", "n_new")  # fields of the step block, not ports
# onnx.TensorProto.DataType of the types that a graph input or output may have
GRAPH_TYPES = {
    1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 9: "bool", 10: "f16", 11: "f64", 12: "u32",
    13: "u64", 16: "bf16", 17: "f8e4m3fn", 18: "f8e4m3fnuz", 19: "f8e5m2", 20: "f8e5m2fnuz", 21: "u4", 22: "i4",
    23: "f4e2m1", 24: "f8e8m0", 25: "u2", 26: "i2",
}  # fmt: skip
# device types of ports that no task touches, by the first letter of the graph's type, where the device has no such type
_UNTOUCHED = {"i": DType.I32, "u": DType.I32, "f": DType.F32}


@dataclass(frozen=True)
class Port:
    """An input or output of an entry: type in device memory, static shape, type in the graph (a GRAPH_TYPES label)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    graph_dtype: str


@dataclass(frozen=True)
class EntryPorts:
    """One entry's row of the metadata."""

    name: str
    rows: int
    capacity: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def entry_ports(graph: EntryGraph, program: EntryProgram) -> EntryPorts:
    """The ports of an entry: what the graph declares, in the types that the tasks use.

    The step block and states are no ports. A port that no task touches keeps the graph's type. EmitError where tasks
    disagree about a port's type.
    """
    used = _device_types(program)
    inputs = [p for p in graph.inputs if p.name not in STEP_INPUTS and not p.name.startswith("state.")]
    outputs = [p for p in graph.outputs if not p.name.startswith("next.")]
    return EntryPorts(
        program.entry,
        program.rows,
        program.capacity,
        tuple(_port(p, used.get(f"{program.entry}.in.{p.name}"), program.entry) for p in inputs),
        tuple(_port(p, used.get(f"{program.entry}.out.{p.name}"), program.entry) for p in outputs),
    )


def build_metadata(
    entries: Iterable[EntryPorts],
    states: Sequence[StateSpec],
    *,
    precision: str,
    target: str,
    llm: LlmInfo | None = None,
    stop_ids: Sequence[int] = (),
    start_id: int | None = None,
    nodes: Sequence[Mapping[str, Any]] = (),
    bounds: Sequence[Mapping[str, Any]] = (),
    estimates: Sequence[Mapping[str, Any]] = (),
    host: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The object, ready for `npuc.emit.write_blob`, which fills in where the states' initial values lie.

    states: in device form. stop_ids, start_id: tokens that end an answer, and the one put before a prompt. nodes: one
    JSON object per graph node for reports (engine choice and the like); no paths, times or names of files. bounds: of
    each entry the record of `npuc.bound`, or nothing; estimates: the same of `npuc.estimate`. host: the
    program that entries and steps of the host make up, where there is one.
    """
    rows = [_entry(entry) for entry in entries]
    for row, bound in zip(rows, bounds, strict=bool(bounds)):
        row["bound"] = dict(bound)
    for row, estimate in zip(rows, estimates, strict=bool(estimates)):
        row["estimate"] = dict(estimate)
    if llm is not None and llm.whole_runs:
        for row in rows:
            row["whole_runs"] = row["name"] != "head"
    return {
        "format": FORMAT,
        "precision": precision,
        "target": target,
        "llm": None if llm is None else _llm(llm, stop_ids, start_id),
        "entries": rows,
        "states": [_state(state) for state in states],
        "nodes": [dict(node) for node in nodes],
        **({} if host is None else {"host": dict(host)}),
    }


def _llm(llm: LlmInfo, stop_ids: Sequence[int], start_id: int | None) -> dict[str, Any]:
    return {
        "vocab": llm.vocab, "hidden": llm.hidden, "chunk": llm.chunk, "max_prompt_len": llm.max_prompt_len,
        "capacities": list(llm.capacities), "eos": list(stop_ids), "bos": start_id,
        "ids": llm.ids, "hidden_value": llm.hidden_value, "logits": llm.logits,
    }  # fmt: skip


def _entry(entry: EntryPorts) -> dict[str, Any]:
    return {
        "name": entry.name,
        "rows": entry.rows,
        "capacity": entry.capacity,
        "inputs": [_port_row(port) for port in entry.inputs],
        "outputs": [_port_row(port) for port in entry.outputs],
    }


def _port_row(port: Port) -> dict[str, Any]:
    return {"name": port.name, "dtype": port.dtype.label, "shape": list(port.shape), "graph_dtype": port.graph_dtype}


def _state(state: StateSpec) -> dict[str, Any]:
    return {
        "id": state.id, "dtype": state.dtype.label, "shape": list(state.shape), "kind": state.kind,
        "row_axis": state.row_axis, "why": state.why, "initial": None,
    }  # fmt: skip


def _device_types(program: EntryProgram) -> dict[str, DType]:
    types: dict[str, DType] = {}
    for task in program.tasks:
        for region in (*task.reads, *task.writes):
            if region.buffer.role in (Role.INPUT, Role.OUTPUT):
                known = types.setdefault(region.buffer.name, region.dtype)
                if known != region.dtype:
                    raise EmitError(
                        f"entry {program.entry}, buffer {region.buffer.name}: tasks use it as {known.label} "
                        f"and {region.dtype.label}"
                    )
    return types


def _port(spec: PortSpec, used: DType | None, entry: str) -> Port:
    label = GRAPH_TYPES.get(spec.onnx_dtype)
    if label is None:
        raise EmitError(
            f"entry {entry}, port {spec.name}: its element type is none of {', '.join(GRAPH_TYPES.values())}"
        )
    if used is None:
        own = DType.__members__.get(label.upper())
        used = own if own is not None and not own.packed else _UNTOUCHED[label[0]]
    return Port(spec.name, used, spec.shape, label)
