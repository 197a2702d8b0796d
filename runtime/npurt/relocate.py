"""Relocations: read and checked once; applied when sections get addresses, buffers are bound and steps submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npurt.abi import blob
from npurt.abi.blob import RELA, Reloc, SectionType
from npurt.abi.records import BASE, DMA, BaseKind, Step
from npurt.elf import SHN_ABS, SHN_UNDEF, ElfFile, Symbol
from npurt.errors import BlobError
from npurt.image import BaseReloc, StepPatch

MAX_ADDEND = 1 << 20  # bytes between a buffer's first byte and its base
_STEP_FIELDS = {Reloc.STEP_SRC: "src_offset", Reloc.STEP_DST: "dst_offset", Reloc.STEP_VALID: "valid"}
_STEP_SYMBOLS = {f"step.{step.name.lower()}": step for step in Step}
_SECTION_KINDS: dict[int, str] = {BaseKind.CONST: blob.NAME_WEIGHTS, BaseKind.SCRATCH: blob.NAME_SCRATCH}


def _rows(elf: ElfFile, name: str, target: str, symbols: Sequence[Symbol]) -> list[tuple[int, int, Symbol, int]]:
    """(offset, type, symbol, addend) of each relocation; the section must belong to `target`."""
    section = elf.find(name, SectionType.RELA)
    if section.info >= len(elf.sections) or elf.sections[section.info].name != target:
        raise BlobError(f"section {name} does not patch {target}")
    found = []
    for offset, info, addend in elf.table(name, SectionType.RELA, RELA).tolist():
        if info >> 32 >= len(symbols):
            raise BlobError(f"section {name}: symbol {info >> 32} of {len(symbols)}")
        found.append((offset, info & 0xFFFFFFFF, symbols[info >> 32], addend))
    return found


def _field_row(name: str, offset: int, dtype: np.dtype, field: str, rows: int) -> int:
    """The row whose `field` lies at byte `offset` of a table."""
    assert dtype.fields is not None
    row, inside = divmod(offset, dtype.itemsize)
    if inside != dtype.fields[field][1] or row >= rows:
        raise BlobError(f"section {name}: byte {offset} is not the field {field!r} of one of {rows} rows")
    return row


def read_base_relocations(elf: ElfFile, bases: np.ndarray, symbols: Sequence[Symbol]) -> tuple[BaseReloc, ...]:
    """The relocations of the base table, one for each row.

    A weights or scratch base is relocated statically by a symbol of that section, every other base is bound.
    """
    found: dict[int, BaseReloc] = {}
    for name, kind in ((blob.NAME_RELA_STATIC, Reloc.ABS64), (blob.NAME_RELA_BIND, Reloc.BIND64)):
        for offset, type_, symbol, addend in _rows(elf, name, blob.NAME_BASES, symbols):
            row = _field_row(name, offset, BASE, "address", len(bases))
            if type_ != kind or row in found:
                raise BlobError(f"section {name}: base {row} has relocation type {type_} or is patched twice")
            if symbols[int(bases[row]["symbol"])] is not symbol or not 0 <= addend <= MAX_ADDEND:
                raise BlobError(f"section {name}: base {row} is patched by the symbol {symbol.name!r}, addend {addend}")
            if kind is Reloc.ABS64:
                found[row] = _static(elf, bases[row], row, symbol.section, symbol.value + addend)
            elif symbol.section != SHN_UNDEF or bases[row]["kind"] in _SECTION_KINDS:
                raise BlobError(f"section {name}: base {row} is left to be bound and lies in the blob")
            else:
                found[row] = BaseReloc(row, None, addend)
    missing = [row for row in range(len(bases)) if row not in found]
    if missing:
        raise BlobError(f"base {missing[0]} has no relocation")
    return tuple(found[row] for row in sorted(found))


def _static(elf: ElfFile, base: np.void, row: int, index: int, offset: int) -> BaseReloc:
    """The relocation to a section, which must be the one of the base's kind and hold all of it."""
    section = elf.sections[index] if 0 < index < len(elf.sections) else None
    if section is None or section.name != _SECTION_KINDS.get(int(base["kind"])):
        raise BlobError(f"base {row} of kind {int(base['kind'])} lies in {section.name if section else 'no section'}")
    if offset + int(base["size"]) > section.size:
        raise BlobError(f"base {row} ends beyond its section {section.name}")
    return BaseReloc(row, index, offset)


def read_step_patches(elf: ElfFile, dma: np.ndarray, symbols: Sequence[Symbol]) -> tuple[StepPatch, ...]:
    """The step relocations in table order; a field is patched at most once."""
    name = blob.NAME_RELA_STEP
    patches: list[StepPatch] = []
    seen: set[tuple[int, str]] = set()
    for offset, type_, symbol, addend in _rows(elf, name, blob.NAME_DMA, symbols):
        if type_ not in _STEP_FIELDS or symbol.name not in _STEP_SYMBOLS:
            raise BlobError(f"section {name}: relocation type {type_} by the symbol {symbol.name!r}")
        step = _STEP_SYMBOLS[symbol.name]
        if symbol.section != SHN_ABS or symbol.value != 4 * step:
            raise BlobError(f"symbol {symbol.name!r} is not the place of its field in the step block")
        field = _STEP_FIELDS[Reloc(type_)]
        patch = StepPatch(_field_row(name, offset, DMA, field, len(dma)), field, step, addend)
        if (patch.row, field) in seen or (field != "valid" and addend < 0):
            raise BlobError(f"section {name}: {field} of DMA {patch.row} is patched twice or has the addend {addend}")
        seen.add((patch.row, field))
        patches.append(patch)
    return tuple(patches)


def apply_base(bases: np.ndarray, reloc: BaseReloc, address: int) -> None:
    """ABS64 and BIND64: the base's address, `address` being that of its section or bound buffer."""
    bases["address"][reloc.row] = address + reloc.offset


def apply_steps(dma: np.ndarray, patches: Sequence[StepPatch], first: int, step: Mapping[Step, int]) -> None:
    """STEP_SRC, STEP_DST and STEP_VALID, in place. first: the table row of dma[0].

    Offsets that do not fit the field are clamped to its ends, where no buffer reaches.
    """
    for patch in patches:
        record = dma[patch.row - first]
        dim = int(record["row_dim"])
        value = step[patch.symbol]
        if patch.field == "valid":
            record["valid"] = min(max(value + patch.addend, 0), int(record["size"][dim]))
        else:
            stride = int(record["src_stride" if patch.field == "src_offset" else "dst_stride"][dim])
            record[patch.field] = min(max(patch.addend + value * stride, 0), 2**64 - 1)
