"""Changing bytes of a blob in tests, with its digests made right again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.elf.elffile import ELFFile

from npurt.abi import blob


@dataclass(frozen=True)
class Bytes:
    """Where a section's bytes lie in the file."""

    name: str
    index: int
    offset: int
    size: int


def sections(path: Path) -> dict[str, Bytes]:
    with path.open("rb") as file:
        return {
            section.name: Bytes(section.name, index, section["sh_offset"], section["sh_size"])
            for index, section in enumerate(ELFFile(file).iter_sections())
            if section["sh_type"] != "SHT_NOBITS"
        }


def with_digests(data: bytearray, found: dict[str, Bytes]) -> bytes:
    """`data` with every digest recomputed; a row that names no section stays as it is."""
    table = found[blob.NAME_DIGEST]
    rows = np.frombuffer(memoryview(data)[table.offset : table.offset + table.size], blob.SECTION_DIGEST)
    places = {section.index: section for section in found.values()}
    for row in rows:
        section = places.get(int(row["section"]))
        if section is None:
            continue
        digest = hashlib.sha256(data[section.offset : section.offset + section.size]).digest()
        row["sha256"][:] = np.frombuffer(digest, np.uint8)
    return bytes(data)


def zeroed_records(path: Path, name: str, record: np.dtype) -> Iterator[tuple[int, bytes]]:
    """For each record of a table: its row, and the file with that record zeroed and the digests right."""
    original, found = path.read_bytes(), sections(path)
    table = found[name]
    for row in range(table.size // record.itemsize):
        data = bytearray(original)
        start = table.offset + row * record.itemsize
        data[start : start + record.itemsize] = bytes(record.itemsize)
        yield row, with_digests(data, found)
