"""The .npu.meta object of a blob, checked: what ports and states are, for people and for the session."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

from npurt.abi.dtypes import DType
from npurt.errors import BlobError

FORMAT = 1
MAX_PORT_RANK = 8
GRAPH_TYPES = (
    "f32", "f16", "bf16", "f64", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1", "f8e8m0",
    "i64", "i32", "i16", "i8", "i4", "i2", "u64", "u32", "u16", "u8", "u4", "u2", "bool",
)  # fmt: skip
STATE_KINDS = ("append", "ring", "replace", "read_only", "write_only")
T = TypeVar("T")


@dataclass(frozen=True)
class Port:
    """An input or output: element type in device memory, static shape, element type in the graph."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    graph_dtype: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.nbytes


@dataclass(frozen=True)
class State:
    """A state buffer. initial: byte offset of its first value in the weights, None for zeros."""

    id: str
    dtype: DType
    shape: tuple[int, ...]
    kind: str
    initial: int | None

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.nbytes


@dataclass(frozen=True)
class EntryPorts:
    """One entry: its name, rows of a step and capacity of the cache as the metadata state them, and its ports.

    whole_runs: all rows of a run must be valid, since a state that it replaces would take padding in.
    """

    name: str
    rows: int
    capacity: int
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    whole_runs: bool = False


@dataclass(frozen=True)
class Metadata:
    """The checked object. raw: the whole JSON object."""

    raw: Mapping[str, Any]
    target: str
    entries: tuple[EntryPorts, ...]
    states: tuple[State, ...]


def parse_metadata(text: bytes) -> Metadata:
    """Errors: BlobError where a field that the runtime uses is missing or of another type."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BlobError(f"metadata: no JSON: {str(error) or 'nested too deep'}") from None
    if _field(raw, "format", int, "metadata") != FORMAT:
        raise BlobError(f"metadata: format {raw['format']}, this runtime reads {FORMAT}")
    entries = tuple(_entry(row) for row in _field(raw, "entries", list, "metadata"))
    states = tuple(_state(row) for row in _field(raw, "states", list, "metadata"))
    metadata = Metadata(raw, _field(raw, "target", str, "metadata"), entries, states)
    if _field(raw, "llm", (dict, type(None)), "metadata") is not None:
        _check_llm(metadata)
    return metadata


def _field(row: Any, key: str, kind: type[T] | tuple[type, ...], where: str) -> T:
    value = row.get(key, _field) if isinstance(row, dict) else _field
    if value is _field or not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        names = "/".join(t.__name__ for t in (kind if isinstance(kind, tuple) else (kind,)))
        raise BlobError(f"{where}: {key!r} is missing or not of type {names}")
    return value  # type: ignore[return-value]


def _extents(row: Any, where: str) -> tuple[int, ...]:
    shape = _field(row, "shape", list, where)
    if len(shape) > MAX_PORT_RANK or any(type(n) is not int or not 0 <= n < 1 << 32 for n in shape):
        raise BlobError(f"{where}: the shape is no list of at most {MAX_PORT_RANK} sizes")
    return tuple(shape)


def _dtype(row: Any, where: str) -> DType:
    label = _field(row, "dtype", str, where)
    if label.upper() not in DType.__members__ or DType[label.upper()].packed:
        raise BlobError(f"{where}: element type {label!r} is unknown")
    return DType[label.upper()]


def _port(row: Any, where: str) -> Port:
    name = _field(row, "name", str, where)
    where = f"{where} {name!r}"
    graph_dtype = _field(row, "graph_dtype", str, where)
    if graph_dtype not in GRAPH_TYPES:
        raise BlobError(f"{where}: graph element type {graph_dtype!r} is unknown")
    return Port(name, _dtype(row, where), _extents(row, where), graph_dtype)


def _entry(row: Any) -> EntryPorts:
    name = _field(row, "name", str, "metadata entry")
    where = f"entry {name!r}"
    inputs = tuple(_port(port, f"{where} input") for port in _field(row, "inputs", list, where))
    outputs = tuple(_port(port, f"{where} output") for port in _field(row, "outputs", list, where))
    whole = "whole_runs" in row and _field(row, "whole_runs", bool, where)
    rows, capacity = _field(row, "rows", int, where), _field(row, "capacity", int, where)
    return EntryPorts(name, rows, capacity, inputs, outputs, whole)


def _state(row: Any) -> State:
    name = _field(row, "id", str, "metadata state")
    where = f"state {name!r}"
    kind = _field(row, "kind", str, where)
    if kind not in STATE_KINDS:
        raise BlobError(f"{where}: kind {kind!r} is none of {', '.join(STATE_KINDS)}")
    initial: int | None = _field(row, "initial", (int, type(None)), where)
    return State(name, _dtype(row, where), _extents(row, where), kind, initial)


def _check_llm(metadata: Metadata) -> None:
    """What a session reads: sizes, end tokens, and the entries that it runs with their ports."""
    llm, where = metadata.raw["llm"], "metadata llm"
    for key in ("vocab", "chunk", "max_prompt_len"):
        if _field(llm, key, int, where) < 1:
            raise BlobError(f"{where}: {key} {llm[key]} is not positive")
    capacities: list[Any] = _field(llm, "capacities", list, where)
    if not capacities or any(type(n) is not int or n < 1 for n in capacities):
        raise BlobError(f"{where}: the capacities are no list of positive whole numbers")
    if any(type(n) is not int or n < 0 for n in _field(llm, "eos", list, where)):
        raise BlobError(f"{where}: the end tokens are no list of token ids")
    _field(llm, "bos", (int, type(None)), where)
    entries = {entry.name: entry for entry in metadata.entries}
    for name in ("prefill", "head", *(f"generate.{capacity}" for capacity in capacities)):
        if name not in entries:
            raise BlobError(f"{where}: the entry {name!r} is missing")
        wanted = "hidden" if name == "head" else "input_ids"
        if all(port.name != wanted for port in entries[name].inputs):
            raise BlobError(f"{where}: the entry {name!r} has no input {wanted!r}")
