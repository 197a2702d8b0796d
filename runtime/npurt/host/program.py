"""The `host` object of the metadata, checked: a program whose entries take turns with steps of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from npurt.errors import BlobError
from npurt.host.op import FLOATS, INTEGERS, Attributes, Shape, StepFault
from npurt.host.table import check_step
from npurt.metadata import MAX_PORT_RANK, EntryPorts

CONSTANTS = "host.constants"
"""The asset that holds what steps read beside values: arrays in C order, little endian, one after the other."""
DTYPES: Mapping[str, np.dtype[Any]] = {
    **{label: np.dtype(f"<f{int(label[1:]) // 8}") for label in FLOATS},
    **{label: np.dtype(f"<{label[0]}{int(label[1:]) // 8}") for label in INTEGERS},
}
_WHERE = "metadata host"


@dataclass(frozen=True)
class Value:
    """A tensor of the program: static shape, and element type in the graph."""

    shape: Shape
    graph_dtype: str


@dataclass(frozen=True)
class HostStep:
    """One operator on the host. inputs: names of values, or constants as arrays. node: of the graph."""

    op: str
    node: str
    attributes: Attributes
    inputs: tuple[str | np.ndarray, ...]
    output: str
    shape: Shape
    graph_dtype: str


@dataclass(frozen=True)
class HostProgram:
    """A program that is run by its name like an entry. steps: names of entries and steps of the host, in order."""

    name: str
    inputs: Mapping[str, Value]
    outputs: Mapping[str, Value]
    steps: tuple[str | HostStep, ...]

    @property
    def host_steps(self) -> list[HostStep]:
        """Those that the host computes."""
        return [step for step in self.steps if isinstance(step, HostStep)]


def parse_host(raw: Any, entries: Mapping[str, EntryPorts], constants: bytes) -> HostProgram:
    """The program of the metadata's `host`. entries: of the device. constants: content of the asset `CONSTANTS`.

    Errors: BlobError where a step is unknown or reads what is not there, where an operator does not take its inputs, or
    where a shape or an element type is not what it must be.
    """
    if not isinstance(raw, dict):
        raise BlobError(f"{_WHERE}: no object")
    name = _text(raw, "name", _WHERE)
    if name in entries:
        raise BlobError(f"{_WHERE}: {name!r} is an entry, too")
    inputs = {_text(row, "name", f"{_WHERE} input"): _value(row, f"{_WHERE} input") for row in _rows(raw, "inputs")}
    known = dict(inputs)
    steps: list[str | HostStep] = []
    for number, row in enumerate(_rows(raw, "steps")):
        where = f"{_WHERE} step {number}"
        if isinstance(row, dict) and "entry" in row:
            entry = _text(row, "entry", where)
            if entry not in entries or entry in steps:
                raise BlobError(f"{where}: {entry!r} is no entry, or has been run")
            _check_entry(entry, entries[entry], known, where)
            steps.append(entry)
            continue
        step = _step(row, known, constants, where)
        _define(known, step.output, Value(step.shape, step.graph_dtype), where)
        steps.append(step)
    outputs = {_text(row, "name", f"{_WHERE} output"): _value(row, f"{_WHERE} output") for row in _rows(raw, "outputs")}
    for output, value in outputs.items():
        if known.get(output) != value:
            raise BlobError(f"{_WHERE}: no step makes the output {output!r} in its shape and type")
    return HostProgram(name, inputs, outputs, tuple(steps))


def _check_entry(name: str, entry: EntryPorts, known: dict[str, Value], where: str) -> None:
    for port in entry.inputs:
        if known.get(port.name) != Value(port.shape, port.graph_dtype):
            raise BlobError(f"{where}: entry {name} reads {port.name!r}, which no step has made in its shape and type")
    for port in entry.outputs:
        _define(known, port.name, Value(port.shape, port.graph_dtype), where)


def _define(known: dict[str, Value], name: str, value: Value, where: str) -> None:
    if name in known:
        raise BlobError(f"{where}: {name!r} is made twice")
    known[name] = value


def _step(row: Any, known: Mapping[str, Value], constants: bytes, where: str) -> HostStep:
    op, node = _text(row, "op", where), _text(row, "node", where)
    where = f"{where} ({op})"
    inputs: list[str | np.ndarray] = []
    types, shapes = [], []
    for given in _rows(row, "inputs", where):
        if isinstance(given, dict) and "value" in given:
            name = _text(given, "value", where)
            if name not in known:
                raise BlobError(f"{where}: reads {name!r}, which no step before has made")
            inputs.append(name)
            value = known[name]
        else:
            value = _value(given, f"{where} constant")
            inputs.append(_constant(given, value, constants, where))
        types.append(value.graph_dtype)
        shapes.append(value.shape)
    output = row.get("output")
    made = _value(output, f"{where} output")
    try:
        shape = check_step(op, row.get("attributes"), types, shapes)
    except StepFault as fault:
        raise BlobError(f"{where}: {fault}") from None
    if made != Value(shape, types[0]):
        raise BlobError(f"{where}: the output is not {types[0]}{list(shape)}")
    name = _text(output, "name", where)
    return HostStep(op, node, row["attributes"], tuple(inputs), name, shape, types[0])


def _constant(row: Any, value: Value, constants: bytes, where: str) -> np.ndarray:
    dtype, first = DTYPES.get(value.graph_dtype), row.get("constant")
    if dtype is None or type(first) is not int or first < 0:
        raise BlobError(f"{where}: a constant has no offset, or is of type {value.graph_dtype}")
    if first + prod(value.shape) * dtype.itemsize > len(constants):
        raise BlobError(f"{where}: a constant at byte {first} is outside the {len(constants)} that there are")
    return np.frombuffer(constants, dtype, prod(value.shape), first).reshape(value.shape)


def _rows(row: Any, key: str, where: str = _WHERE) -> list[Any]:
    rows = row.get(key) if isinstance(row, dict) else None
    if not isinstance(rows, list):
        raise BlobError(f"{where}: {key!r} is no list")
    return rows


def _text(row: Any, key: str, where: str) -> str:
    text = row.get(key) if isinstance(row, dict) else None
    if not isinstance(text, str):
        raise BlobError(f"{where}: {key!r} is no text")
    return text


def _value(row: Any, where: str) -> Value:
    shape = row.get("shape") if isinstance(row, dict) else None
    if not isinstance(shape, list) or len(shape) > MAX_PORT_RANK:
        raise BlobError(f"{where}: the shape is no list of at most {MAX_PORT_RANK} sizes")
    if any(type(extent) is not int or not 0 <= extent < 1 << 32 for extent in shape):
        raise BlobError(f"{where}: the shape {shape} has an impossible extent")
    return Value(tuple(shape), _text(row, "graph_dtype", where))
