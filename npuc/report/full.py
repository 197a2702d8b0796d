"""Every record of a blob in words: sections, symbols, bases, tasks with addresses and barriers, programs, metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator

from npuc.report.describe import Bindings, Describer, fill_marks
from npuc.report.listing_text import FULL, token
from npuc.report.programs import program_listing
from npuc.report.reader import Blob
from npuc.report.rows import Record, TaskRow, TaskRows, records
from npurt.abi import blob
from npurt.abi.records import NO_BASE, BaseKind

# name of an operand -> its base and offset fields, per table
_OPERANDS = {
    "dma": {name: (f"{name}_base", f"{name}_offset") for name in ("src", "dst", "index")},
    "dpu": {name: (f"{name}_base", f"{name}_offset") for name in ("a", "b", "c", "table")},
}


class _Symbols(Bindings):
    """Calls constants and states by their symbols."""

    def label(self, kind: str, symbol: str) -> str:
        return symbol


def full_lines(image: Blob) -> Iterator[str]:
    """All lines, without newlines."""
    yield f"npuc blob {image.version[0]}.{image.version[1]}{FULL}"
    for section in image.sections[1:]:
        place = f"offset {section.offset} size {section.size} align {section.align}"
        form = f"{section.type_name} flags {section.flags:#x}"
        yield f"section {section.name} {form} {place} {section.memory_class}".rstrip()
    for symbol in image.symbols[1:]:
        yield f"symbol {symbol.name} section {symbol.section:#x} value {symbol.value} size {symbol.size}"
    describer, tasks, barriers = Describer(image), TaskRows(image), records(image.table(blob.NAME_BARRIERS))
    for row, base in enumerate(records(image.table(blob.NAME_BASES))):
        kind = BaseKind(base["kind"]).name.lower()
        yield f"base {row} {describer.symbols[row]} {kind} {base['size']} B tile {base['tile']}"
    for entry in tasks.entries:
        yield ""
        yield f"entry {token(image.name(entry['name']))}  rows {entry['rows']}  capacity {entry['capacity']}"
        first = entry["barrier_first"]
        for i, barrier in enumerate(barriers[first : first + entry["barrier_count"]]):
            yield f"  barrier {i} id {barrier['id']} producers {barrier['producers']} consumers {barrier['consumers']}"
        for task in tasks.of(entry):
            yield f"  {_task(task, describer)}"
    yield ""
    yield from program_listing(image)
    yield ""
    yield from json.dumps(image.metadata, sort_keys=True, ensure_ascii=False, indent=1).splitlines()


def _task(task: TaskRow, describer: Describer) -> str:
    described = describer.describe(task.table, task.row, task.record, _Symbols())
    origin = f"{token(task.node)} {token(task.kernel)} {token(task.stage)} {list(task.coord)}"
    body = fill_marks(described.text, [str(value) for value in described.values])
    return f"{task.sequence} {task.queue} {origin}: {body} | {_addresses(task, describer)}{_sync(task.record)}"


def _addresses(task: TaskRow, describer: Describer) -> str:
    """Operands as base + offset; those of a SHAVE call are numbered."""
    if task.table == "shave":
        args = describer.args(task.record)
        found = {str(i): (base, offset) for i, (base, _, offset) in enumerate(args)}
    else:
        fields = _OPERANDS[task.table]
        found = {name: (task.record[base], task.record[offset]) for name, (base, offset) in fields.items()}
    used = {name: place for name, place in found.items() if place[0] != NO_BASE}
    return " ".join(f"{name}={describer.symbols[base]}+{offset}" for name, (base, offset) in used.items())


def _sync(record: Record) -> str:
    return f" wait {_ids(record['wait'])} post {_ids(record['post'])} after {record['start_after']}"


def _ids(mask: list[int]) -> str:
    return "[" + ",".join(str(64 * word + i) for word in range(2) for i in range(64) if mask[word] >> i & 1) + "]"
