"""The stable listing of a blob: tasks grouped by node, kernel, stage and form.

It is the model behind `npuc disasm` and `npuc diff`; `listing_text` writes it as text and reads it back.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.report.describe import DIGEST_CHARS, Bindings, Described, Describer, fill_marks
from npuc.report.programs import program_lines
from npuc.report.reader import Blob
from npuc.report.rows import QUEUE_NAMES, Record, TaskRow, TaskRows
from npuc.report.series import boxes_text, formula
from npuc.report.tensors import extents
from npurt.abi import blob
from npurt.abi.dtypes import DType


@dataclass(frozen=True)
class Group:
    """Tasks of one queue, kernel, stage and form. coords: `boxes_text`; body: the form, numbers as formulas."""

    queue: str
    kernel: str
    stage: str
    coords: str
    body: str


@dataclass(frozen=True)
class Node:
    """The tasks of one graph node in one entry. bindings: what its const#i and state#i are."""

    name: str
    bindings: tuple[str, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Entry:
    """One entry. totals: tasks, tasks per queue, barriers, cmx_peak, scratch and DDR bytes in and out."""

    name: str
    rows: int
    capacity: int
    totals: dict[str, int]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Listing:
    """header: lines about the whole blob; programs: lines about its SHAVE programs."""

    header: tuple[str, ...]
    entries: tuple[Entry, ...]
    programs: tuple[str, ...]


def build_listing(image: Blob) -> Listing:
    """The listing of a blob. Damage that reading meets is a BlobError."""
    describer, tasks = Describer(image), TaskRows(image)
    entries = []
    for row in tasks.entries:
        members = tasks.of(row)
        nodes = tuple(_nodes(members, describer))
        totals = entry_totals(row, members, describer)
        entries.append(Entry(image.name(row["name"]), row["rows"], row["capacity"], totals, nodes))
    return Listing(tuple(_header(image)), tuple(entries), tuple(program_lines(image)))


def _nodes(tasks: list[TaskRow], describer: Describer) -> Iterator[Node]:
    """In order of each node's first task."""
    by_node: dict[str, list[TaskRow]] = {}
    for task in tasks:
        by_node.setdefault(task.node, []).append(task)
    for name, members in by_node.items():
        bindings = Bindings()
        groups = tuple(_groups(members, describer, bindings))
        words = tuple(describer.binding_text(symbol, label) for symbol, label in bindings.labels.items())
        yield Node(name, words, groups)


def _groups(tasks: list[TaskRow], describer: Describer, bindings: Bindings) -> Iterator[Group]:
    """In order of each group's first task. Tasks of one name are told apart by a count, the coordinate's last place."""
    repeats: dict[tuple[Any, ...], int] = {}
    groups: dict[tuple[Any, ...], list[tuple[tuple[int, ...], Described]]] = {}
    for task in tasks:
        name = (task.queue, task.kernel, task.stage, task.coord)
        repeat = repeats[name] = repeats.get(name, -1) + 1
        described = describer.describe(task.table, task.row, task.record, bindings)
        key = (task.queue, task.kernel, task.stage, len(task.coord), described.text)
        groups.setdefault(key, []).append(((*task.coord, repeat), described))
    for (queue, kernel, stage, _, text), members in groups.items():
        coords = np.array([coord for coord, _ in members], np.int64)
        values = np.array([described.values for _, described in members], np.int64)
        yield Group(queue, kernel, stage, boxes_text(c for c, _ in members), _filled(text, coords, values))


def _filled(text: str, coords: np.ndarray, values: np.ndarray) -> str:
    return fill_marks(text, [formula(coords, values[:, place]) for place in range(values.shape[1])])


def entry_totals(row: Record, tasks: list[TaskRow], describer: Describer) -> dict[str, int]:
    """Counts of an entry and its bytes: cmx_peak, scratch, and what its DMA tasks move from and to DDR.

    A runtime extent counts as taken in full.
    """
    totals = {"tasks": len(tasks)} | dict.fromkeys(QUEUE_NAMES.values(), 0)
    read = written = 0
    for task in tasks:
        totals[task.queue] += 1
        if task.table == "dma":
            record = task.record
            count = math.prod(record["size"])
            if describer.in_ddr(record["src_base"]):
                read += count * DType(record["src_type"]).nbytes
            if describer.in_ddr(record["dst_base"]):
                written += count * DType(record["dst_type"]).nbytes
    totals |= {"barriers": row["barrier_count"], "cmx_peak": row["cmx_peak"], "scratch": row["scratch_bytes"]}
    return totals | {"ddr_read": read, "ddr_written": written}


def _header(image: Blob) -> Iterator[str]:
    meta = image.metadata
    yield f"npuc blob {image.version[0]}.{image.version[1]}"
    for key in ("target", "precision"):
        yield f"{key} {meta.get(key)}"
    for key, value in sorted((meta.get("llm") or {}).items()):
        yield f"llm.{key} {value}"
    weights = image.section(blob.NAME_WEIGHTS)
    yield f"weights {weights.size} B sha256 {_digest(image.content(weights))}"
    yield f"scratch {image.section(blob.NAME_SCRATCH).size} B"
    for section in image.sections:
        if section.name.startswith(blob.NAME_ASSET_PREFIX):
            name = section.name.removeprefix(blob.NAME_ASSET_PREFIX)
            yield f"asset {name} {section.size} B sha256 {_digest(image.content(section))}"
    for state in meta["states"]:
        initial = "initially " + ("zeros" if state["initial"] is None else "given")
        rows = "" if state["row_axis"] is None else f" rows at axis {state['row_axis']}"
        form = f"{state['dtype']}{extents(state['shape'])} {state['kind']}{rows}"
        yield f"state {state['id']} {form}, {initial}: {state['why']}"
    for entry in meta["entries"]:
        for way, key in (("in", "inputs"), ("out", "outputs")):
            for port in entry[key]:
                graph = "" if port["graph_dtype"] == port["dtype"] else f", {port['graph_dtype']} in the graph"
                yield f"port {entry['name']}.{way}.{port['name']} {port['dtype']}{extents(port['shape'])}{graph}"


def _digest(data: np.ndarray) -> str:
    return hashlib.sha256(data.data).hexdigest()[:DIGEST_CHARS]
