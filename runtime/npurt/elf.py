"""Reads the ELF container of a blob: header, sections, symbols, relocations, strings.

The file is untrusted. Every offset and size is checked against the file before it is used, nothing is allocated by a
number that the file merely states, and every refusal is a BlobError of one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from npurt.abi import blob
from npurt.abi.blob import SectionType
from npurt.errors import BlobError

MAX_SECTIONS = 4096
SHN_UNDEF, SHN_ABS = 0, 0xFFF1
_IDENT = b"\x7fELF\x02\x01\x01"  # 64-bit, little-endian, version 1


@dataclass(frozen=True)
class Section:
    """One section header. offset, size: bytes in the file (size alone for NOBITS)."""

    index: int
    name: str
    type: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True)
class Symbol:
    """One symbol. section: index of its section, SHN_UNDEF or SHN_ABS."""

    name: str
    value: int
    size: int
    section: int


class StringTable:
    """NUL-terminated UTF-8 strings by byte offset."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self._where = data, where

    def __getitem__(self, offset: int) -> str:
        end = self._data.find(b"\0", offset) if offset < len(self._data) else -1
        if end < 0:
            raise BlobError(f"{self._where}: no string at byte {offset} of {len(self._data)}")
        try:
            return self._data[offset:end].decode()
        except UnicodeDecodeError:
            raise BlobError(f"{self._where}: the string at byte {offset} is no UTF-8") from None


class ElfFile:
    """The sections of one file. data: uint8 [bytes], possibly a read-only map."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.sections = tuple(_sections(data))
        self._by_name: dict[str, Section] = {}
        for section in self.sections[1:]:
            if self._by_name.setdefault(section.name, section) is not section:
                raise BlobError(f"two sections are named {section.name!r}")

    def find(self, name: str, kind: SectionType) -> Section:
        """The section of that name, which must have that type."""
        section = self._by_name.get(name)
        if section is None:
            raise BlobError(f"the section {name} is missing")
        if section.type != kind:
            raise BlobError(f"section {name} has type {section.type:#x}, {kind.name} ({kind:#x}) is due")
        return section

    def view(self, section: Section) -> np.ndarray:
        """The section's bytes in the file, uint8, not copied."""
        return self.data[section.offset : section.offset + section.size]

    def content(self, name: str, kind: SectionType) -> bytes:
        """A copy of the section's bytes."""
        return self.view(self.find(name, kind)).tobytes()

    def table(self, name: str, kind: SectionType, dtype: np.dtype) -> np.ndarray:
        """A writable copy of the section as rows of `dtype`."""
        content = self.content(name, kind)
        if len(content) % dtype.itemsize:
            raise BlobError(f"section {name}: {len(content)} bytes are no whole number of {dtype.itemsize}-byte rows")
        return np.frombuffer(bytearray(content), dtype)

    def strings(self, name: str) -> StringTable:
        return StringTable(self.content(name, SectionType.STRTAB), f"section {name}")

    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols, the null symbol first."""
        rows = self.table(blob.NAME_SYMTAB, SectionType.SYMTAB, blob.SYM)
        strings = self.strings(blob.NAME_STRTAB)
        found = []
        for name, _, _, section, value, size in rows.tolist():
            if section not in (SHN_UNDEF, SHN_ABS) and section >= len(self.sections):
                raise BlobError(f"symbol {strings[name]!r} lies in section {section} of {len(self.sections)}")
            found.append(Symbol(strings[name], value, size, section))
        return tuple(found)


def _header(data: np.ndarray) -> np.void:
    if data.size < blob.EHDR.itemsize:
        raise BlobError(f"{data.size} bytes are too short for an ELF header of {blob.EHDR.itemsize}")
    header: np.void = np.frombuffer(data[: blob.EHDR.itemsize].tobytes(), blob.EHDR)[0]
    if header["e_ident"].tobytes()[: len(_IDENT)] != _IDENT:
        raise BlobError("no 64-bit little-endian ELF file, so no blob of npuc")
    if header["e_machine"] != blob.E_MACHINE or header["e_type"] != 1:
        raise BlobError(
            f"an ELF file for machine {int(header['e_machine']):#x}, type {int(header['e_type'])}: "
            f"a blob has machine {blob.E_MACHINE:#x}, type 1"
        )
    return header


def _sections(data: np.ndarray) -> Iterator[Section]:
    header = _header(data)
    first, count, names = int(header["e_shoff"]), int(header["e_shnum"]), int(header["e_shstrndx"])
    size = blob.SHDR.itemsize
    if header["e_shentsize"] != size or not 1 <= count <= MAX_SECTIONS or names >= count:
        raise BlobError(
            f"section table of {count} rows of {int(header['e_shentsize'])} bytes, names in section {names}"
        )
    if first + count * size > data.size:
        raise BlobError(f"the section table ends at byte {first + count * size}, the file at {data.size}")
    rows = np.frombuffer(data[first : first + count * size].tobytes(), blob.SHDR)
    for index, row in enumerate(rows):
        end = int(row["sh_offset"]) + int(row["sh_size"])
        if row["sh_type"] not in (SectionType.NULL, SectionType.NOBITS) and end > data.size:
            raise BlobError(f"section {index} ends at byte {end}, the file at {data.size}")
    table = rows[names]
    if table["sh_type"] != SectionType.STRTAB:
        raise BlobError(
            f"section {names}, which should hold the names of sections, has type {int(table['sh_type']):#x}"
        )
    start = int(table["sh_offset"])
    strings = StringTable(data[start : start + int(table["sh_size"])].tobytes(), "section names")
    for index, row in enumerate(rows):
        yield Section(
            index, strings[int(row["sh_name"])], int(row["sh_type"]), int(row["sh_offset"]), int(row["sh_size"]),
            int(row["sh_link"]), int(row["sh_info"]),
        )  # fmt: skip
