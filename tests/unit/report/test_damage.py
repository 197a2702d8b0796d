"""A damaged blob gives one line that says so, never another error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from npuc.emit import write_blob
from npuc.report import disasm, inspect_blob
from npuc.report.reader import Blob
from npurt.abi import blob
from npurt.errors import BlobError
from tests.unit.emit.programs import model


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "good.blob"
    write_blob(*model().arguments(), path)
    return path


def refused(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(BlobError) as caught:
        disasm(path, full=True)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: b"", "an empty file is no blob"),
        (lambda data: b"hello" * 20, "no 64-bit little-endian ELF file, so no blob of npuc"),
        (
            lambda data: data[:18] + b"\x3e\0" + data[20:],
            "an ELF file for machine 0x3e, type 1: a blob has machine 0x4e50, type 1",
        ),
        (
            lambda data: data[:1000],
            "the section table ends at byte 1600, the file at 1000",
        ),
        (lambda data: data[:3000], "section 5 ends at byte 10672, the file at 3000"),
    ],
)
def test_files_that_are_no_blob(good: Path, tmp_path: Path, edit: Callable[[bytes], bytes], message: str) -> None:
    path = tmp_path / "bad.blob"
    assert refused(path, edit(good.read_bytes())) == f"{path}: {message}"


def test_another_version(good: Path, tmp_path: Path) -> None:
    data = bytearray(good.read_bytes())
    at = Blob(good).section(blob.NAME_NOTE).offset + 20
    data[at] = 2
    path = tmp_path / "bad.blob"
    assert refused(path, bytes(data)) == (
        f"{path}: the blob has format 2.1, this runtime reads 1.0 to 1.1: use a newer npuc to run it"
    )


def test_any_damaged_word_is_read_or_refused_in_one_line(good: Path, tmp_path: Path) -> None:
    """Words of the tables are overwritten with large numbers, one at a time."""
    data = good.read_bytes()
    end = Blob(good).section(blob.NAME_SCRATCH).offset
    refusals = 0
    path = tmp_path / "bad.blob"
    for at in np.random.default_rng(0).integers(0, end // 4, 100).tolist():
        path.write_bytes(data[: 4 * at] + b"\xf3\xff\xff\x7f" + data[4 * at + 4 :])
        for read in (disasm, inspect_blob, lambda p: disasm(p, full=True)):
            try:
                read(path)
            except BlobError as error:
                refusals += 1
                assert str(error).startswith(f"{path}: ") and "\n" not in str(error)
    assert refusals > 20
