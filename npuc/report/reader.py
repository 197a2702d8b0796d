"""Reads a blob for people and tests: sections, symbols and tables as they lie in the file, nothing relocated.

It checks what reading needs (bounds, record sizes, string ends) and no more; whether a blob may run is the loader's to
say.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from npurt.abi import blob, records
from npurt.abi.blob import SectionFlag, SectionType
from npurt.errors import BlobError


@contextmanager
def reading(path: str | Path) -> Iterator[Blob]:
    """The blob at `path`; what its tables say wrongly (indices, codes, names that are not there) is a BlobError too."""
    image = Blob(path)
    try:
        yield image
    except (LookupError, ValueError, TypeError, AttributeError) as error:
        raise BlobError(f"{path}: the tables do not fit together, the file is damaged ({error})") from error


@dataclass(frozen=True)
class SectionRow:
    """One section header. index: its place in the header table; offset, size, align, entsize in bytes."""

    index: int
    name: str
    type: int
    flags: int
    offset: int
    size: int
    align: int
    entsize: int
    link: int
    info: int

    @property
    def type_name(self) -> str:
        return SectionType(self.type).name if self.type in set(SectionType) else f"{self.type:#x}"

    @property
    def memory_class(self) -> str:
        """firmware, dma or shave; "" where no part of the device reads the section."""
        names = {SectionFlag.MEM_FIRMWARE: "firmware", SectionFlag.MEM_DMA: "dma", SectionFlag.MEM_SHAVE: "shave"}
        return next((name for flag, name in names.items() if self.flags & flag), "")


@dataclass(frozen=True)
class SymbolRow:
    """One symbol, by the names of `npurt.abi.blob.SYM`."""

    name: str
    value: int
    size: int
    section: int
    local: bool


_TABLES = {
    blob.NAME_ENTRIES: records.ENTRY,
    blob.NAME_BASES: records.BASE,
    blob.NAME_BARRIERS: records.BARRIER,
    blob.NAME_DMA: records.DMA,
    blob.NAME_DPU: records.DPU,
    blob.NAME_SHAVE: records.SHAVE,
    blob.NAME_SHAVE_KERNELS: records.SHAVE_KERNEL,
    blob.NAME_SHAVE_ARGS: records.SHAVE_ARG,
    blob.NAME_ORIGINS: records.ORIGIN,
    blob.NAME_DIGEST: blob.SECTION_DIGEST,
    blob.NAME_RELA_STATIC: blob.RELA,
    blob.NAME_RELA_BIND: blob.RELA,
    blob.NAME_RELA_STEP: blob.RELA,
}


class Blob:
    """A blob on disk, mapped read-only. BlobError where the file is none or is damaged where it is read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.data: np.ndarray = np.memmap(self.path, "u1", "r")
        except (OSError, ValueError) as error:  # an empty file is a ValueError
            raise BlobError(f"{path}: {error}") from error
        self.sections = self._sections()
        self._by_name = {section.name: section for section in self.sections}
        self.version = self._version()

    def section(self, name: str) -> SectionRow:
        """The section of that name; BlobError where there is none."""
        found = self._by_name.get(name)
        if found is None:
            raise BlobError(f"{self.path}: no section {name}")
        return found

    def content(self, section: SectionRow) -> np.ndarray:
        """Its bytes [size] u1, mapped, not copied; empty for NOBITS."""
        size = 0 if section.type == SectionType.NOBITS else section.size
        return self.data[section.offset : section.offset + size]

    def table(self, name: str) -> np.ndarray:
        """The rows of a record table."""
        section, dtype = self.section(name), _TABLES[name]
        if section.entsize != dtype.itemsize or section.size % dtype.itemsize:
            raise BlobError(
                f"{self.path}: section {name} has records of {section.entsize} bytes in {section.size}, "
                f"version {blob.ABI_MAJOR}.{blob.ABI_MINOR} has records of {dtype.itemsize}"
            )
        return np.frombuffer(self.content(section).tobytes(), dtype)

    @cached_property
    def symbols(self) -> list[SymbolRow]:
        """All symbols, the null symbol first."""
        section = self.section(blob.NAME_SYMTAB)
        rows = np.frombuffer(self.content(section).tobytes(), blob.SYM)
        strings = self.content(self.section(blob.NAME_STRTAB)).tobytes()
        return [
            SymbolRow(self._string(strings, name), value, size, section, local=info >> 4 == 0)
            for name, info, _, section, value, size in rows.tolist()
        ]

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self.content(self.section(blob.NAME_META)).tobytes())
        except ValueError as error:
            raise BlobError(f"{self.path}: section {blob.NAME_META} is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise BlobError(f"{self.path}: section {blob.NAME_META} is no JSON object")
        return found

    @cached_property
    def _names(self) -> bytes:
        return self.content(self.section(blob.NAME_NAMES)).tobytes()

    def name(self, offset: int) -> str:
        """A string of .npu.names."""
        return "" if offset == records.NO_NODE else self._string(self._names, offset)

    def _string(self, strings: bytes, offset: int) -> str:
        end = strings.find(b"\0", offset)
        if offset >= len(strings) or end < 0:
            raise BlobError(f"{self.path}: a name at offset {offset} lies outside its string table")
        return strings[offset:end].decode("utf-8", "replace")

    def _sections(self) -> list[SectionRow]:
        size = len(self.data)
        if size < blob.EHDR.itemsize or self.data[:4].tobytes() != b"\x7fELF":
            raise BlobError(f"{self.path}: not an ELF file; a blob is written by `npuc compile`")
        header = np.frombuffer(self.data[: blob.EHDR.itemsize].tobytes(), blob.EHDR)[0]
        if int(header["e_machine"]) != blob.E_MACHINE or int(header["e_shentsize"]) != blob.SHDR.itemsize:
            machine = int(header["e_machine"])
            raise BlobError(f"{self.path}: an ELF file for machine {machine:#x}, a blob has {blob.E_MACHINE:#x}")
        start, count = int(header["e_shoff"]), int(header["e_shnum"])
        end = start + count * blob.SHDR.itemsize
        if end > size or int(header["e_shstrndx"]) >= count:
            raise self._short(size, "the section headers", end)
        rows = np.frombuffer(self.data[start:end].tobytes(), blob.SHDR)
        for i, row in enumerate(rows):
            last = int(row["sh_offset"]) + int(row["sh_size"])
            if row["sh_type"] not in (SectionType.NOBITS, SectionType.NULL) and last > size:
                raise self._short(size, f"section {i}", last)
        names = rows[int(header["e_shstrndx"])]
        strings = self.data[int(names["sh_offset"]) :][: int(names["sh_size"])].tobytes()
        return [
            SectionRow(i, self._string(strings, int(r["sh_name"])), *(int(r[f"sh_{key}"]) for key in _HEADER_FIELDS))
            for i, r in enumerate(rows)
        ]

    def _short(self, size: int, what: str, end: int) -> BlobError:
        return BlobError(f"{self.path}: {size} bytes, {what} would end at {end}; the file is cut short or damaged")

    def _version(self) -> tuple[int, int]:
        words = np.frombuffer(self.content(self.section(blob.NAME_NOTE)).tobytes(), "<u4")
        if len(words) < 7:
            raise BlobError(f"{self.path}: section {blob.NAME_NOTE} is too short for a version")
        major, minor = int(words[5]), int(words[6])
        if major != blob.ABI_MAJOR or minor > blob.ABI_MINOR:
            raise BlobError(
                f"{self.path}: a blob of version {major}.{minor}, this npuc reads {blob.ABI_MAJOR}.0 to "
                f"{blob.ABI_MAJOR}.{blob.ABI_MINOR}; compile the model again or install the npuc that wrote it"
            )
        return major, minor


_HEADER_FIELDS = ("type", "flags", "offset", "size", "addralign", "entsize", "link", "info")
