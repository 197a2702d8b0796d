"""From scheduled programs to one ELF file.

The bytes follow from the arguments alone: no path, time, host or user, and no order that a hash decides.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.emit import elf
from npuc.emit.atomic import atomic_file
from npuc.emit.bases import SCRATCH, BaseTable, base_rows, plan_bases, symbols_of
from npuc.emit.elf import Section, StringTable
from npuc.emit.errors import EmitError, WriteError
from npuc.emit.pool import ConstPlan, Placed, plan_consts, stream
from npuc.emit.relocs import bind_relocations, static_relocations, step_relocations
from npuc.emit.shave import TEXT_ALIGN
from npuc.emit.tables import TaskTables, build_tables
from npuc.graph.entry import StateSpec
from npuc.progress import Report, silent
from npuc.tasks.program import EntryProgram
from npurt.abi import blob
from npurt.abi.blob import SectionFlag, SectionType

FIRMWARE = SectionFlag.ALLOC | SectionFlag.MEM_FIRMWARE
DMA_MEMORY = SectionFlag.ALLOC | SectionFlag.MEM_DMA
SHAVE_MEMORY = SectionFlag.ALLOC | SectionFlag.MEM_SHAVE


def write_blob(
    programs: Sequence[EntryProgram],
    states: Sequence[StateSpec],
    metadata: Mapping[str, Any],
    assets: Mapping[str, bytes],
    path: str | Path,
    report: Report = silent,
) -> int:
    """Writes the blob, whole or not at all, and returns its size in bytes.

    programs: the entries, each under its name in the blob (``generate.512``). states: in device form: dtype and shape
    are those of the memory, `initial` is in dtype's storage type. metadata: from `npuc.report.metadata`, entries in the
    order of the programs. assets: files for the session by name. INPUT, OUTPUT and STATE buffers of the tasks bear the
    names of their symbols: ``<entry>.in.<name>``, ``<entry>.out.<name>``, ``state.<id>``. report: told how much is
    written.

    EmitError where these do not fit together, WriteError where the file cannot be written; what was at `path` is then
    still there.
    """
    plan = _plan(programs, states, metadata, assets)
    try:
        with atomic_file(path) as file:
            offsets = elf.layout(_sections(plan, Placed.nowhere(plan.consts)))
            file.write(bytes(offsets[-1]))
            placed = stream(plan.consts, file, report)
            size = offsets[-1] + placed.size
            sections = _sections(plan, placed)
            assert elf.layout(sections) == offsets, "sizes follow from counts alone"
            file.seek(0)
            file.write(elf.head(sections, offsets))
    except OSError as error:
        raise WriteError(f"{path}: {error.strerror or error}; nothing was written") from error
    return size


@dataclass(frozen=True)
class _Plan:
    """Everything that does not depend on where the constants lie."""

    bases: BaseTable
    consts: ConstPlan
    tables: TaskTables
    shave_kernels: np.ndarray
    names: StringTable
    metadata: bytes
    assets: Mapping[str, bytes]


def _plan(
    programs: Sequence[EntryProgram],
    states: Sequence[StateSpec],
    metadata: Mapping[str, Any],
    assets: Mapping[str, bytes],
) -> _Plan:
    consts = plan_consts(programs, states)
    bases = plan_bases(programs, states, metadata)
    names = StringTable()
    tables = build_tables(programs, bases, consts, names)
    kernels = tables.shave_text.rows(names)
    return _Plan(bases, consts, tables, kernels, names, _metadata(metadata, states, consts), assets)


def _metadata(metadata: Mapping[str, Any], states: Sequence[StateSpec], consts: ConstPlan) -> bytes:
    """The JSON text, with the offsets of initial values in the weights filled in."""
    complete = copy.deepcopy(dict(metadata))
    if [entry["id"] for entry in complete["states"]] != [state.id for state in states]:
        raise EmitError(
            f"states of the metadata: {', '.join(entry['id'] for entry in complete['states'])}; "
            f"given: {', '.join(state.id for state in states)}; the same in the same order were expected"
        )
    for entry in complete["states"]:
        entry["initial"] = consts.state_offsets.get(entry["id"])
    return json.dumps(complete, sort_keys=True, ensure_ascii=False, indent=1).encode() + b"\n"


def _sections(plan: _Plan, placed: Placed) -> list[Section]:
    """All sections in file order. `placed` changes values, never sizes, except that of the weights."""
    tables, offsets = plan.tables, placed.offsets
    symbols = symbols_of(plan.bases, plan.consts, placed)
    dma = tables.placed("dma", offsets)
    names, kind = blob.NAME_NAMES, SectionType
    version = elf.note(blob.NOTE_NAME, blob.NOTE_ABI, (blob.ABI_MAJOR, blob.ABI_MINOR))

    sections = [
        elf.raw(blob.NAME_NOTE, kind.NOTE, version, align=4),
        elf.table(blob.NAME_ENTRIES, kind.NPU_ENTRIES, tables.entries, FIRMWARE, names),
        elf.table(blob.NAME_BASES, kind.NPU_BASES, base_rows(plan.bases, symbols, placed), FIRMWARE, blob.NAME_SYMTAB),
        elf.table(blob.NAME_BARRIERS, kind.NPU_BARRIERS, tables.barriers, FIRMWARE),
        elf.table(blob.NAME_DMA, kind.NPU_DMA, dma, FIRMWARE, names),
        elf.table(blob.NAME_DPU, kind.NPU_DPU, tables.placed("dpu", offsets), FIRMWARE, names),
        elf.table(blob.NAME_SHAVE, kind.NPU_SHAVE, tables.shave, FIRMWARE, names),
        elf.table(blob.NAME_SHAVE_KERNELS, kind.NPU_SHAVE_KERNELS, plan.shave_kernels, SHAVE_MEMORY, names),
        elf.table(blob.NAME_SHAVE_ARGS, kind.NPU_SHAVE_ARGS, tables.placed("args", offsets), SHAVE_MEMORY),
        elf.raw(blob.NAME_SHAVE_TEXT, kind.NPU_SHAVE_TEXT, tables.shave_text.text(), SHAVE_MEMORY, TEXT_ALIGN),
        elf.table(blob.NAME_ORIGINS, kind.NPU_ORIGINS, tables.origins, 0, names),
        elf.raw(names, kind.STRTAB, plan.names.tobytes()),
        elf.raw(blob.NAME_META, kind.NPU_META, plan.metadata),
    ]
    for name in sorted(plan.assets):
        sections.append(elf.raw(blob.NAME_ASSET_PREFIX + name, kind.NPU_ASSET, plan.assets[name]))
    static = static_relocations(plan.bases, symbols)
    bind = bind_relocations(plan.bases, symbols)
    step = step_relocations(tables.patches, dma, symbols)
    for name, rows, target in (
        (blob.NAME_RELA_STATIC, static, blob.NAME_BASES),
        (blob.NAME_RELA_BIND, bind, blob.NAME_BASES),
        (blob.NAME_RELA_STEP, step, blob.NAME_DMA),
    ):
        sections.append(elf.table(name, kind.RELA, rows, SectionFlag.INFO_LINK, blob.NAME_SYMTAB, target))
    return _completed(sections, symbols, plan.bases.rows[SCRATCH].size, placed)


def _completed(sections: list[Section], symbols: list[elf.Symbol], scratch: int, placed: Placed) -> list[Section]:
    """Adds what needs the indices of all sections: symbols and digests."""
    weights = Section(blob.NAME_WEIGHTS, SectionType.PROGBITS, None, placed.size, DMA_MEMORY, blob.PAGE)
    tail = [
        Section(blob.NAME_SCRATCH, SectionType.NOBITS, None, scratch, DMA_MEMORY | SectionFlag.WRITE, blob.PAGE),
        weights,
    ]
    head_names = [*(s.name for s in sections), blob.NAME_SYMTAB, blob.NAME_STRTAB, blob.NAME_DIGEST, blob.NAME_SHSTRTAB]
    symtab, strtab = elf.symbol_sections(symbols, [*head_names, *(s.name for s in tail)])
    sections = [*sections, symtab, strtab]
    names = elf.with_names([*sections, _digests(sections, placed.sha256, 0), *tail])
    last = len(names)  # the weights are the last section, and the null section comes before the first
    complete = [_digests(sections, placed.sha256, last) if s.name == blob.NAME_DIGEST else s for s in names]
    assert [s.name for s in complete] == [*head_names, *(s.name for s in tail)]
    return complete


def _digests(sections: Sequence[Section], weights: bytes, weights_index: int) -> Section:
    """SHA-256 of every section before this one, and of the weights."""
    rows = np.zeros(len(sections) + 1, blob.SECTION_DIGEST)
    rows["section"][:-1] = range(1, len(sections) + 1)
    rows["section"][-1] = weights_index
    for row, section in zip(rows, sections, strict=False):
        assert section.data is not None
        row["sha256"] = np.frombuffer(hashlib.sha256(section.data).digest(), "u1")
    rows[-1]["sha256"] = np.frombuffer(weights, "u1")
    return elf.table(blob.NAME_DIGEST, SectionType.NPU_DIGEST, rows)
