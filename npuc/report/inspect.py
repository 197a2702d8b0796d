"""`npuc inspect`: what a blob holds, as data and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.report.describe import Describer
from npuc.report.listing import entry_totals
from npuc.report.reader import Blob, reading
from npuc.report.rows import QUEUE_NAMES, TaskRows
from npurt.abi import blob
from npurt.abi.blob import SectionFlag
from npurt.abi.dtypes import DType
from npurt.errors import BlobError, TargetError


def inspect_blob(path: str | Path) -> dict[str, Any]:
    """What `npuc inspect --json` prints; sizes in bytes. BlobError where the file is no blob.

    version, file_bytes, target, precision; entries: [name, rows, capacity, tasks {total and by queue}, barriers,
    cmx_peak, cmx_bytes (of the target, or None where it is not known), scratch_bytes, ddr_read, ddr_written, inputs,
    outputs]; sections: [name, type, flags, memory, bytes, align]; states: [id, class, why, dtype, shape, bytes];
    assets: [name, bytes]; host: None, or the program that entries and steps of the host make up: name, steps [entry, or
    op and node].
    """
    with reading(path) as image:
        return _inspect(image)


def _inspect(image: Blob) -> dict[str, Any]:
    meta = image.metadata
    describer, tasks = Describer(image), TaskRows(image)
    ports = {entry["name"]: entry for entry in meta["entries"]}
    capacity = _cmx_bytes(meta["target"])
    entries = []
    for row in tasks.entries:
        name, totals = image.name(row["name"]), entry_totals(row, tasks.of(row), describer)
        entries.append(
            {
                "name": name,
                "rows": row["rows"],
                "capacity": row["capacity"],
                "tasks": {"total": totals["tasks"]} | {queue: totals[queue] for queue in QUEUE_NAMES.values()},
                "barriers": totals["barriers"],
                "cmx_peak": totals["cmx_peak"],
                "cmx_bytes": capacity,
                "scratch_bytes": totals["scratch"],
                "ddr_read": totals["ddr_read"],
                "ddr_written": totals["ddr_written"],
                "inputs": ports[name]["inputs"],
                "outputs": ports[name]["outputs"],
            }
        )
    sections = [*_sections(image)]
    return {
        "version": f"{image.version[0]}.{image.version[1]}",
        "file_bytes": len(image.data),
        "target": meta["target"],
        "precision": meta["precision"],
        "entries": entries,
        "sections": sections,
        "states": [_state(state) for state in meta["states"]],
        "assets": [
            {"name": s["name"].removeprefix(blob.NAME_ASSET_PREFIX), "bytes": s["bytes"]}
            for s in sections
            if s["name"].startswith(blob.NAME_ASSET_PREFIX)
        ],
        "host": _host(meta.get("host")),
    }


def inspect_text(found: Mapping[str, Any]) -> str:
    """The same for people, lines ended by a newline."""
    size = _size(found["file_bytes"])
    head = f"blob version {found['version']}, {size}, for {found['target']} in {found['precision']}"
    entries = [["entry", "tasks", *QUEUE_NAMES.values(), "barriers", "CMX peak", "DDR read", "DDR written"]]
    for e in found["entries"]:
        peak = _size(e["cmx_peak"]) + (f" of {_size(e['cmx_bytes'])}" if e["cmx_bytes"] is not None else "")
        entries.append([e["name"], *map(str, e["tasks"].values()), str(e["barriers"]), peak, _size(e["ddr_read"]),
                        _size(e["ddr_written"])])  # fmt: skip
    sections = [["section", "type", "flags", "memory", "bytes"]]
    sections += [[s["name"], s["type"], " ".join(s["flags"]), s["memory"], str(s["bytes"])] for s in found["sections"]]
    states = [["state", "class", "form", "bytes", "why"]]
    for s in found["states"]:
        form = f"{s['dtype']}[{','.join(map(str, s['shape']))}]"
        states.append([s["id"], s["class"], form, str(s["bytes"]), s["why"]])
    lines = [head, "", *_columns(entries), "", *_columns(sections)]
    if len(states) > 1:
        lines += ["", *_columns(states)]
    if found["host"] is not None:
        steps = [step.get("entry") or f"host {step['op']} ({step['node']})" for step in found["host"]["steps"]]
        lines += ["", f"program {found['host']['name']}: {', '.join(steps)}"]
    return "".join(f"{line}\n" for line in lines)


def _host(program: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if program is None:
        return None
    steps = [{key: step[key] for key in ("entry", "op", "node") if key in step} for step in program["steps"]]
    return {"name": program["name"], "steps": steps}


def _sections(image: Blob) -> Iterator[dict[str, Any]]:
    """By lief, an independent reader of ELF files; relocations are not asked for, as lief knows no machine of ours."""
    import lief

    config = lief.ELF.ParserConfig()
    config.parse_relocations = False
    parsed = lief.ELF.parse(str(image.path), config)
    if parsed is None:
        raise BlobError("lief cannot parse it, the file is damaged")
    for row, section in zip(image.sections[1:], list(parsed.sections)[1:], strict=True):
        yield {
            "name": str(section.name),
            "type": row.type_name,
            "flags": _flags(int(section.flags)),
            "memory": row.memory_class,
            "bytes": int(section.size),
            "align": int(section.alignment),
        }


def _flags(flags: int) -> list[str]:
    known = (SectionFlag.WRITE, SectionFlag.ALLOC, SectionFlag.INFO_LINK)
    return [(flag.name or "").lower() for flag in known if flags & flag]


def _state(state: Mapping[str, Any]) -> dict[str, Any]:
    dtype = DType[state["dtype"].upper()]
    return {
        "id": state["id"],
        "class": state["kind"],
        "why": state["why"],
        "dtype": state["dtype"],
        "shape": state["shape"],
        "bytes": int(np.prod(state["shape"], dtype=np.int64)) * dtype.nbytes,
    }


def _cmx_bytes(target: str) -> int | None:
    """Bytes of the target's scratchpad; None where this installation does not know the target."""
    from npurt.target import load_target

    try:
        cmx = load_target(target).memories["cmx"].bytes
    except TargetError:
        return None
    return int(cmx)


def _size(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
