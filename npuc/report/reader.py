"""Reads a blob for people and tests: sections, symbols and tables as they lie in the file, nothing relocated.

The container is read by `npurt.elf`, which checks bounds and strings, and the version must be one that this npuc knows.
Whether the program may run is the loader's to say: a blob that it refuses can still be looked at.
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
from npurt.elf import ElfFile, StringTable, Symbol
from npurt.errors import BlobError
from npurt.integrity import check_version

_TABLES = {
    blob.NAME_ENTRIES: (SectionType.NPU_ENTRIES, records.ENTRY),
    blob.NAME_BASES: (SectionType.NPU_BASES, records.BASE),
    blob.NAME_BARRIERS: (SectionType.NPU_BARRIERS, records.BARRIER),
    blob.NAME_DMA: (SectionType.NPU_DMA, records.DMA),
    blob.NAME_DPU: (SectionType.NPU_DPU, records.DPU),
    blob.NAME_SHAVE: (SectionType.NPU_SHAVE, records.SHAVE),
    blob.NAME_SHAVE_KERNELS: (SectionType.NPU_SHAVE_KERNELS, records.SHAVE_KERNEL),
    blob.NAME_SHAVE_ARGS: (SectionType.NPU_SHAVE_ARGS, records.SHAVE_ARG),
    blob.NAME_ORIGINS: (SectionType.NPU_ORIGINS, records.ORIGIN),
    blob.NAME_DIGEST: (SectionType.NPU_DIGEST, blob.SECTION_DIGEST),
    blob.NAME_RELA_STATIC: (SectionType.RELA, blob.RELA),
    blob.NAME_RELA_BIND: (SectionType.RELA, blob.RELA),
    blob.NAME_RELA_STEP: (SectionType.RELA, blob.RELA),
}
_MEMORY = {SectionFlag.MEM_FIRMWARE: "firmware", SectionFlag.MEM_DMA: "dma", SectionFlag.MEM_SHAVE: "shave"}


@contextmanager
def reading(path: str | Path) -> Iterator[Blob]:
    """The blob at `path`. BlobError, one line that starts with the path, where it is none, or where its tables name
    something that is not there; OSError where the file cannot be read."""
    try:
        yield Blob(path)
    except BlobError as error:
        raise BlobError(f"{path}: {error}") from error
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise BlobError(f"{path}: the tables do not fit together, the file is damaged ({error})") from error


@dataclass(frozen=True)
class SectionRow:
    """One section header. index: its place in the header table; offset, size, align in bytes."""

    index: int
    name: str
    type: int
    flags: int
    offset: int
    size: int
    align: int

    @property
    def type_name(self) -> str:
        return SectionType(self.type).name if self.type in set(SectionType) else f"{self.type:#x}"

    @property
    def memory_class(self) -> str:
        """firmware, dma or shave; "" where no part of the device reads the section."""
        return next((name for flag, name in _MEMORY.items() if self.flags & flag), "")


class Blob:
    """A blob on disk, mapped read-only. BlobError without the path: use `reading`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.stat().st_size == 0:
            raise BlobError("an empty file is no blob")
        self.data: np.ndarray = np.memmap(self.path, "u1", "r").view(np.ndarray)
        self.elf = ElfFile(self.data)
        self.version = check_version(self.elf)
        self.sections = [*self._sections()]
        self._known_names = {records.NO_NODE: ""}
        self._by_name = {section.name: section for section in self.sections}

    def section(self, name: str) -> SectionRow:
        """The section of that name; BlobError where there is none."""
        if name not in self._by_name:
            raise BlobError(f"the section {name} is missing")
        return self._by_name[name]

    def content(self, section: SectionRow) -> np.ndarray:
        """Its bytes [size] u1, mapped, not copied; empty for NOBITS."""
        size = 0 if section.type == SectionType.NOBITS else section.size
        return self.data[section.offset : section.offset + size]

    def table(self, name: str) -> np.ndarray:
        """The rows of a record table, a copy."""
        return self.elf.table(name, *_TABLES[name])

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """All symbols, the null symbol first."""
        return self.elf.symbols()

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        found = json.loads(self.elf.content(blob.NAME_META, SectionType.NPU_META))
        if not isinstance(found, dict):
            raise BlobError(f"section {blob.NAME_META} is no JSON object")
        return found

    @cached_property
    def _names(self) -> StringTable:
        return self.elf.strings(blob.NAME_NAMES)

    def name(self, offset: int) -> str:
        """A string of .npu.names; "" for NO_NODE."""
        found = self._known_names.get(offset)
        if found is None:
            found = self._known_names[offset] = self._names[offset]
        return found

    def _sections(self) -> Iterator[SectionRow]:
        header = np.frombuffer(self.data[: blob.EHDR.itemsize].tobytes(), blob.EHDR)[0]
        start, count = int(header["e_shoff"]), int(header["e_shnum"])
        rows = np.frombuffer(self.data[start : start + count * blob.SHDR.itemsize].tobytes(), blob.SHDR)
        for section, row in zip(self.elf.sections, rows, strict=True):
            flags, align = int(row["sh_flags"]), int(row["sh_addralign"])
            yield SectionRow(section.index, section.name, section.type, flags, section.offset, section.size, align)
