"""Is this blob one that this runtime understands, and are its bytes those that were written?"""

from __future__ import annotations

import hashlib

import numpy as np

from npurt.abi import blob
from npurt.abi.blob import SectionType
from npurt.elf import ElfFile
from npurt.errors import BlobError

_NOTE_HEAD = np.dtype([("namesz", "<u4"), ("descsz", "<u4"), ("type", "<u4")])
_UNCOVERED = (blob.NAME_DIGEST, blob.NAME_SHSTRTAB)  # written after the digests


def check_version(elf: ElfFile) -> tuple[int, int]:
    """(major, minor) of the blob. BlobError unless the major is this runtime's and the minor is not newer."""
    note = elf.content(blob.NAME_NOTE, SectionType.NOTE)
    name_bytes = blob.NOTE_NAME + b"\0" * (4 - len(blob.NOTE_NAME) % 4)
    head = np.array((len(blob.NOTE_NAME) + 1, 8, blob.NOTE_ABI), _NOTE_HEAD).tobytes() + name_bytes
    if len(note) != len(head) + 8 or not note.startswith(head):
        raise BlobError(f"section {blob.NAME_NOTE} holds no version of npuc")
    major, minor = np.frombuffer(note, "<u4", 2, len(head)).tolist()
    if major != blob.ABI_MAJOR or minor > blob.ABI_MINOR:
        remedy = "compile the model again" if major < blob.ABI_MAJOR else "use a newer npuc to run it"
        raise BlobError(
            f"the blob has format {major}.{minor}, this runtime reads {blob.ABI_MAJOR}.0 to "
            f"{blob.ABI_MAJOR}.{blob.ABI_MINOR}: {remedy}"
        )
    return major, minor


def check_digests(elf: ElfFile) -> None:
    """BlobError unless every section with bytes has its SHA-256 in .npu.digest, and each one is right."""
    rows = elf.table(blob.NAME_DIGEST, SectionType.NPU_DIGEST, blob.SECTION_DIGEST)
    due = {
        section.index
        for section in elf.sections
        if section.type not in (SectionType.NULL, SectionType.NOBITS) and section.name not in _UNCOVERED
    }
    listed = [int(index) for index in rows["section"]]
    if len(set(listed)) != len(listed) or set(listed) != due:
        raise BlobError(f"section {blob.NAME_DIGEST} lists {len(listed)} digests, {len(due)} other sections are due")
    for index, digest in zip(listed, rows["sha256"], strict=True):
        section = elf.sections[index]
        if hashlib.sha256(elf.view(section).data).digest() != digest.tobytes():
            raise BlobError(f"section {section.name}: its SHA-256 is not the one in the blob, the file is damaged")
