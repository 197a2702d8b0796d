"""A writer for one ELF64 little-endian relocatable file, by the dtypes of `npurt.abi.blob`.

The order in the file is: header, section headers, contents in the order of the sections. Everything but the contents
of a section whose `data` is None lies in the head, whose size depends on sizes alone; so the last section can be
streamed to its place before the head is known. (lief cannot create a file and breaks relocatable ones that it edits.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from npuc.emit.errors import EmitError
from npurt.abi import blob
from npurt.abi.blob import SectionType

ET_REL = 1
EV_CURRENT = 1
SHN_UNDEF = 0
SHN_ABS = 0xFFF1
STB_LOCAL, STB_GLOBAL = 0, 1
STT_NOTYPE, STT_OBJECT = 0, 1


@dataclass
class StringTable:
    """NUL-terminated UTF-8 strings, each stored once, in order of first use; offset 0 is the empty string."""

    _offsets: dict[str, int] = field(default_factory=lambda: {"": 0})
    _size: int = 1

    def add(self, text: str) -> int:
        """The byte offset of `text`, which is added where it is new. A NUL inside is an EmitError."""
        found = self._offsets.get(text)
        if found is None:
            if "\0" in text:
                raise EmitError(f"the name {text!r} contains a NUL character, which a string table cannot hold")
            found = self._offsets[text] = self._size
            self._size += len(text.encode()) + 1
        return found

    def tobytes(self) -> bytes:
        return b"".join(text.encode() + b"\0" for text in self._offsets)


@dataclass(frozen=True)
class Section:
    """One section; `align` in bytes. data: contents, or None for NOBITS and for contents written by someone else.

    link, info: the name of another section (its index is written), or for info a number.
    """

    name: str
    type: SectionType
    data: bytes | None
    size: int
    flags: int = 0
    align: int = 8
    entsize: int = 0
    link: str = ""
    info: str | int = 0


@dataclass(frozen=True)
class Symbol:
    """One symbol. section: a section name, "" for undefined (whoever loads the file gives the address), "*ABS*"."""

    name: str
    value: int
    size: int
    section: str = ""
    local: bool = False


def table(name: str, type_: SectionType, rows: np.ndarray, flags: int = 0, link: str = "", info: str = "") -> Section:
    """A section that holds the rows of a structured array."""
    data = rows.tobytes()
    return Section(name, type_, data, len(data), flags, 8, rows.dtype.itemsize, link, info or 0)


def raw(name: str, type_: SectionType, data: bytes, flags: int = 0, align: int = 1) -> Section:
    """A section of plain bytes."""
    return Section(name, type_, data, len(data), flags, align)


def with_names(sections: Sequence[Section]) -> list[Section]:
    """The sections, with .shstrtab put before the first one that has no data."""
    names = StringTable()
    for section in sections:
        names.add(section.name)
    names.add(blob.NAME_SHSTRTAB)
    place = next((i for i, s in enumerate(sections) if s.data is None), len(sections))
    return [*sections[:place], raw(blob.NAME_SHSTRTAB, SectionType.STRTAB, names.tobytes()), *sections[place:]]


def symbol_sections(symbols: Sequence[Symbol], sections: Sequence[str]) -> tuple[Section, Section]:
    """.symtab and .strtab. Locals must come first; symbol i of the input gets index i + 1, as 0 is the null symbol.

    sections: names in file order, without the null section.
    """
    first_global = next((i for i, s in enumerate(symbols) if not s.local), len(symbols))
    assert all(not s.local for s in symbols[first_global:]), "local symbols come before global ones"
    strings = StringTable()
    index = {"": SHN_UNDEF, "*ABS*": SHN_ABS} | {name: i + 1 for i, name in enumerate(sections)}
    rows = np.zeros(len(symbols) + 1, blob.SYM)
    rows["st_name"][1:] = [strings.add(s.name) for s in symbols]
    rows["st_info"][1:] = [_bind(s) << 4 | (STT_OBJECT if s.section else STT_NOTYPE) for s in symbols]
    rows["st_shndx"][1:] = [index[s.section] for s in symbols]
    rows["st_value"][1:] = [s.value for s in symbols]
    rows["st_size"][1:] = [s.size for s in symbols]
    data = rows.tobytes()
    entsize, link = blob.SYM.itemsize, blob.NAME_STRTAB
    symtab = Section(blob.NAME_SYMTAB, SectionType.SYMTAB, data, len(data), 0, 8, entsize, link, first_global + 1)
    return symtab, raw(blob.NAME_STRTAB, SectionType.STRTAB, strings.tobytes())


def _bind(symbol: Symbol) -> int:
    return STB_LOCAL if symbol.local else STB_GLOBAL


def note(name: bytes, type_: int, words: Iterable[int]) -> bytes:
    """One note: the name with its NUL and the 32-bit words, each padded to 4 bytes."""
    desc = np.array(list(words), "<u4").tobytes()
    padded = name + b"\0" * (4 - len(name) % 4)
    return np.array([len(name) + 1, len(desc), type_], "<u4").tobytes() + padded + desc


def align_up(offset: int, align: int) -> int:
    return -(-offset // align) * align


def layout(sections: Sequence[Section]) -> list[int]:
    """File offset of each section. NOBITS sections take no room; their offset is where they would lie."""
    offset = blob.EHDR.itemsize + (len(sections) + 1) * blob.SHDR.itemsize
    offsets = []
    for section in sections:
        offset = align_up(offset, section.align)
        offsets.append(offset)
        if section.type != SectionType.NOBITS:
            offset += section.size
    return offsets


def head(sections: Sequence[Section], offsets: Sequence[int]) -> bytes:
    """The file up to the last byte of the last section with data."""
    index = {"": 0} | {section.name: i + 1 for i, section in enumerate(sections)}
    assert len(index) == len(sections) + 1, "section names are unique"
    names = sections[index[blob.NAME_SHSTRTAB] - 1].data
    assert names is not None
    at = _string_offsets(names)

    headers = np.zeros(len(sections) + 1, blob.SHDR)
    for row, section, offset in zip(headers[1:], sections, offsets, strict=True):
        row["sh_name"], row["sh_type"], row["sh_flags"] = at[section.name], section.type, section.flags
        row["sh_offset"], row["sh_size"], row["sh_addralign"] = offset, section.size, section.align
        row["sh_entsize"], row["sh_link"] = section.entsize, index[section.link]
        row["sh_info"] = index[section.info] if isinstance(section.info, str) else section.info

    out = bytearray(_file_header(len(sections) + 1, index[blob.NAME_SHSTRTAB]) + headers.tobytes())
    for section, offset in zip(sections, offsets, strict=True):
        if section.data is not None:
            assert len(section.data) == section.size
            out += bytes(offset - len(out)) + section.data
    return bytes(out)


def _file_header(section_count: int, names_index: int) -> bytes:
    header = np.zeros((), blob.EHDR)
    ident = b"\x7fELF" + bytes([2, 1, EV_CURRENT])  # 64-bit, little-endian, System V
    header["e_ident"][: len(ident)] = np.frombuffer(ident, "u1")
    header["e_type"], header["e_machine"], header["e_version"] = ET_REL, blob.E_MACHINE, EV_CURRENT
    header["e_shoff"], header["e_ehsize"] = blob.EHDR.itemsize, blob.EHDR.itemsize
    header["e_shentsize"], header["e_shnum"], header["e_shstrndx"] = blob.SHDR.itemsize, section_count, names_index
    return header.tobytes()


def _string_offsets(data: bytes) -> dict[str, int]:
    offsets, start = {}, 0
    for text in data.split(b"\0")[:-1]:
        offsets[text.decode()] = start
        start += len(text) + 1
    return offsets
