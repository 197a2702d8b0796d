"""From a file to a verified image: `load(path)` maps the weights, `load_bytes(data)` takes a blob from memory.

Order: container, version, digests, tables, metadata, relocations, then every record of every entry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from npurt import verify
from npurt.abi import blob
from npurt.abi.blob import SectionType
from npurt.abi.records import BARRIER, BASE, DMA, DPU, ENTRY, SHAVE, SHAVE_ARG, SHAVE_KERNEL, BaseKind, Step
from npurt.elf import ElfFile, StringTable, Symbol
from npurt.errors import BlobError, BytecodeError
from npurt.exec.order import allowed_order
from npurt.extents import Refuse
from npurt.host.program import CONSTANTS, HostProgram, parse_host
from npurt.image import Entry, Image, StepPatch, Tables
from npurt.integrity import check_digests, check_version
from npurt.metadata import EntryPorts, Metadata, parse_metadata
from npurt.relocate import read_base_relocations, read_step_patches
from npurt.shave.program import Program, parse
from npurt.target import load_target, target_names


def load(path: str | Path) -> Image:
    """Reads and verifies a blob; its weights stay in the file and are mapped. Errors: BlobError, OSError."""
    try:
        data = np.memmap(path, np.uint8, "r")
    except ValueError:
        raise BlobError(f"{path}: an empty file is no blob") from None
    try:
        return _image(ElfFile(data.view(np.ndarray)))
    except BlobError as error:
        raise type(error)(f"{path}: {error}") from None


def load_bytes(data: bytes) -> Image:
    """The same for a blob in memory. Errors: BlobError."""
    return _image(ElfFile(np.frombuffer(data, np.uint8)))


def _image(elf: ElfFile) -> Image:
    version = check_version(elf)
    check_digests(elf)
    symbols = elf.symbols()
    weights = elf.find(blob.NAME_WEIGHTS, SectionType.PROGBITS)
    scratch = elf.find(blob.NAME_SCRATCH, SectionType.NOBITS)
    metadata = parse_metadata(elf.content(blob.NAME_META, SectionType.NPU_META))
    tables = _tables(elf, symbols)
    verify.check_bases(tables.bases, weights.size, scratch.size)
    relocations = read_base_relocations(elf, tables.bases, symbols)
    steps = read_step_patches(elf, tables.dma, symbols)
    _check_machine(elf, metadata, tables)
    entries = _entries(elf, tables, metadata, steps)
    _check_states(metadata, tables, weights.size)
    assets = {
        section.name.removeprefix(blob.NAME_ASSET_PREFIX): elf.view(section).tobytes()
        for section in elf.sections
        if section.type == SectionType.NPU_ASSET and section.name.startswith(blob.NAME_ASSET_PREFIX)
    }
    return Image(
        version, metadata, tables, {entry.name: entry for entry in entries}, relocations, steps, elf.view(weights),
        weights.index, scratch.index, assets, _host(metadata, assets),
    )  # fmt: skip


def _host(metadata: Metadata, assets: Mapping[str, bytes]) -> HostProgram | None:
    """The program that entries and steps of the host make up together."""
    if metadata.raw.get("host") is None:
        return None
    if metadata.raw["llm"] is not None or metadata.states:
        raise BlobError("metadata host: steps of the host beside states or a language model")
    return parse_host(
        metadata.raw["host"], {entry.name: entry for entry in metadata.entries}, assets.get(CONSTANTS, b"")
    )


def _tables(elf: ElfFile, symbols: Sequence[Symbol]) -> Tables:
    kind = SectionType
    names = elf.strings(blob.NAME_NAMES)
    bases = elf.table(blob.NAME_BASES, kind.NPU_BASES, BASE)
    if any(symbol >= len(symbols) for symbol in bases["symbol"].tolist()):
        raise BlobError(f"section {blob.NAME_BASES} names a symbol beyond the {len(symbols)} that there are")
    programs, kernel_names = _programs(elf, names)
    return Tables(
        bases=bases,
        base_names=tuple(symbols[index].name for index in bases["symbol"].tolist()),
        barriers=elf.table(blob.NAME_BARRIERS, kind.NPU_BARRIERS, BARRIER),
        dma=elf.table(blob.NAME_DMA, kind.NPU_DMA, DMA),
        dpu=elf.table(blob.NAME_DPU, kind.NPU_DPU, DPU),
        shave=elf.table(blob.NAME_SHAVE, kind.NPU_SHAVE, SHAVE),
        shave_args=elf.table(blob.NAME_SHAVE_ARGS, kind.NPU_SHAVE_ARGS, SHAVE_ARG),
        programs=programs,
        kernel_names=kernel_names,
        names=names,
    )


def _programs(elf: ElfFile, names: StringTable) -> tuple[tuple[Program, ...], tuple[str, ...]]:
    """The verified program of each kernel row; equal texts are parsed once."""
    text = elf.content(blob.NAME_SHAVE_TEXT, SectionType.NPU_SHAVE_TEXT)
    parsed: dict[tuple[int, int], Program] = {}
    programs, labels = [], []
    for row, (start, size, name) in enumerate(
        elf.table(blob.NAME_SHAVE_KERNELS, SectionType.NPU_SHAVE_KERNELS, SHAVE_KERNEL).tolist()
    ):
        labels.append(names[name])
        if start + size > len(text):
            raise BlobError(f"kernel {row} ({labels[-1]}): text ends at byte {start + size} of {len(text)}")
        if (start, size) not in parsed:
            try:
                parsed[start, size] = parse(text[start : start + size])
            except BytecodeError as error:
                raise BytecodeError(f"kernel {row} ({labels[-1]}): {error}") from None
        programs.append(parsed[start, size])
    return tuple(programs), tuple(labels)


def _entries(elf: ElfFile, tables: Tables, metadata: Metadata, steps: Sequence[StepPatch]) -> list[Entry]:
    rows = elf.table(blob.NAME_ENTRIES, SectionType.NPU_ENTRIES, ENTRY)
    names = [tables.names[int(row["name"])] for row in rows]
    described = [entry.name for entry in metadata.entries]
    if names != described or len(set(names)) != len(names):
        raise BlobError(f"entries of the tables: {', '.join(names)}; of the metadata: {', '.join(described)}")
    return [
        _entry(name, row, ports, tables, steps) for name, row, ports in zip(names, rows, metadata.entries, strict=True)
    ]


def _entry(name: str, row: np.void, ports: EntryPorts, tables: Tables, steps: Sequence[StepPatch]) -> Entry:
    lengths = {
        "dma": len(tables.dma), "dpu": len(tables.dpu), "shave": len(tables.shave), "barrier": len(tables.barriers),
        "base": len(tables.bases), "step": len(steps),
    }  # fmt: skip
    ranges = {}
    for table, length in lengths.items():
        first, count = int(row[f"{table}_first"]), int(row[f"{table}_count"])
        if first + count > length:
            raise BlobError(f"entry {name}: {table} rows {first} to {first + count} of {length}")
        ranges[table] = range(first, first + count)
    if (int(row["rows"]), int(row["capacity"])) != (ports.rows, ports.capacity):
        raise BlobError(f"entry {name}: rows and capacity are not those of the metadata")
    if int(row["cmx_peak"]) > _size_of(tables, BaseKind.CMX) or int(row["scratch_bytes"]) > _size_of(
        tables, BaseKind.SCRATCH
    ):
        raise BlobError(f"entry {name}: its peaks of memory are larger than the bases")
    _check_ports(name, ranges["base"], ports, tables)
    patches = [steps[i] for i in ranges["step"]]
    if any(patch.row not in ranges["dma"] for patch in patches):
        raise BlobError(f"entry {name}: a step relocation patches a task of another entry")
    max_past = _check_records(name, ports, ranges, patches, tables)
    try:
        tasks = allowed_order(tables, ranges)
    except BlobError as error:
        raise type(error)(f"entry {name}: {error}") from None
    return Entry(
        name, ports.rows, ports.capacity, ranges["dma"], ranges["dpu"], ranges["shave"], ranges["barrier"],
        ranges["step"], ports, max_past, tasks,
    )  # fmt: skip


def _check_records(
    name: str, ports: EntryPorts, ranges: dict[str, range], patches: Sequence[StepPatch], tables: Tables
) -> int:
    """All records of one entry; returns the largest legal n_past."""
    bases = tables.bases

    def refuser(table: str, first: int) -> Refuse:
        return lambda row, what: BlobError(f"entry {name}, {table} task {first + row}: {what}")

    chosen = {
        table: getattr(tables, table)[ranges[table].start : ranges[table].stop] for table in ("dma", "dpu", "shave")
    }
    refuse = {table: refuser(table, ranges[table].start) for table in chosen}
    dma, first = chosen["dma"], ranges["dma"].start
    offsets, valid = verify.row_limits(dma, first, patches, {Step.N_PAST: ports.capacity, Step.N_NEW: ports.rows})
    work = verify.check_dma(dma, offsets, valid, bases, refuse["dma"])
    work += verify.check_dpu(chosen["dpu"], bases, refuse["dpu"])
    work += verify.check_shave(chosen["shave"], tables, refuse["shave"])
    if work > verify.MAX_WORK:
        raise BlobError(f"entry {name}: {work:.3g} element operations, {verify.MAX_WORK} are allowed")
    past = verify.largest_past(dma, first, patches, valid, bases, ports.rows, refuse["dma"])
    if past < 0:
        raise BlobError(f"entry {name}: no n_past keeps every access in its buffer")
    return int(min(past, ports.capacity))


def _size_of(tables: Tables, kind: BaseKind) -> int:
    return int(tables.bases["size"][tables.bases["kind"] == kind][0])


def _check_machine(elf: ElfFile, metadata: Metadata, tables: Tables) -> None:
    """The blob fits the machine that it was compiled for, where that is one of ours: scratchpad and vector code."""
    if metadata.target not in target_names():
        return
    target = load_target(metadata.target)
    wants, has = _size_of(tables, BaseKind.CMX), target.on_chip.get("cmx", 0)
    if wants > has:
        raise BlobError(f"the blob wants {wants} bytes of scratchpad, {metadata.target} has {has}")
    sizes = elf.table(blob.NAME_SHAVE_KERNELS, SectionType.NPU_SHAVE_KERNELS, SHAVE_KERNEL)["text_bytes"].tolist()
    most = target.engine_of("vector").program_code
    for row, (size, name) in enumerate(zip(sizes, tables.kernel_names, strict=True)):
        if most and size > most:
            raise BytecodeError(f"kernel {row} ({name}): {size} bytes of code, {metadata.target} holds {most}")


def _check_ports(name: str, rows: range, ports: EntryPorts, tables: Tables) -> None:
    """The entry's bases are its inputs and outputs, named and sized as the metadata says."""
    due = [(f"{name}.in.{port.name}", BaseKind.INPUT, port.nbytes) for port in ports.inputs]
    due += [(f"{name}.out.{port.name}", BaseKind.OUTPUT, port.nbytes) for port in ports.outputs]
    found = [(tables.base_names[row], int(tables.bases["kind"][row]), int(tables.bases["size"][row])) for row in rows]
    if found != due:
        wrong = next((a for a, b in zip(found, due, strict=False) if a != b), None)
        raise BlobError(
            f"entry {name}: its bases are not the ports of the metadata" + (f", first {wrong[0]}" if wrong else "")
        )


def _check_states(metadata: Metadata, tables: Tables, weights_bytes: int) -> None:
    rows = np.flatnonzero(tables.bases["kind"] == BaseKind.STATE)
    found = [(tables.base_names[row], int(tables.bases["size"][row])) for row in rows.tolist()]
    if found != [(f"state.{state.id}", state.nbytes) for state in metadata.states]:
        raise BlobError("the state bases are not the states of the metadata")
    for state in metadata.states:
        if state.initial is not None and not 0 <= state.initial <= weights_bytes - state.nbytes:
            raise BlobError(f"state {state.id}: its initial value at byte {state.initial} is outside the weights")
