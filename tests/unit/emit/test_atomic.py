"""A blob is written whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuc.emit.writer as writer
from npuc.emit import EmitError, write_blob
from npuc.emit.atomic import atomic_file
from npuc.tasks.graph import Buffer, Const, CopyOp, Role
from npurt.abi.dtypes import DType
from tests.unit.emit.programs import Draft, Model, model, one_entry, view


def failing(produce: Callable[[], np.ndarray]) -> Model:
    """A model whose second constant is made by `produce`."""
    draft = Draft("main", 0, 0)
    for key, make in (("good", lambda: np.ones(8, "<f2")), ("bad", produce)):
        buffer = Buffer(key, "ddr", 16, Role.CONST, const=Const(key, DType.F16, (8,), make))
        local = draft.local(f"{key}.copy", 16)
        draft.add("dma.in", CopyOp(), [view(buffer, (8,))], [view(local, (8,))], ("n", "copy", (), "load"))
    return one_entry(draft)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "model.blob"
    path.write_bytes(b"the old one")
    return path


def untouched(path: Path) -> bool:
    return path.read_bytes() == b"the old one" and [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a tensor file is cut short"), MemoryError()])
def test_whatever_ends_the_writing_leaves_the_old_file(old: Path, error: BaseException) -> None:
    def produce() -> np.ndarray:
        assert len(list(old.parent.iterdir())) == 2  # the temporary file is there by now
        raise error

    with pytest.raises(type(error)):
        write_blob(*failing(produce).arguments(), old)
    assert untouched(old)


def test_a_full_disk(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(writer, "stream", full)
    with pytest.raises(EmitError) as caught:
        write_blob(*model().arguments(), old)
    assert str(caught.value) == f"{old}: No space left on device; nothing was written"
    assert untouched(old)


def test_a_disk_that_fails_at_the_end(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing_sync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", failing_sync)
    with pytest.raises(EmitError, match="Input/output error; nothing was written"):
        write_blob(*model().arguments(), old)
    assert untouched(old)


def test_a_weight_file_that_is_gone(old: Path) -> None:
    def produce() -> np.ndarray:
        return np.fromfile(old.parent / "weights.bin", "<f2")

    with pytest.raises(EmitError) as caught:
        write_blob(*failing(produce).arguments(), old)
    missing = old.parent / "weights.bin"
    assert str(caught.value) == f"constant 'bad' cannot be read: [Errno 2] No such file or directory: '{missing}'"
    assert untouched(old)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(EmitError) as caught:
        write_blob(*model().arguments(), tmp_path / "no" / "x.blob")
    assert str(caught.value) == f"{tmp_path / 'no' / 'x.blob'}: No such file or directory; nothing was written"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(real)
    with atomic_file(link) as file:
        file.write(b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        with atomic_file(tmp_path / "x") as file:
            file.write(b"x")
    finally:
        os.umask(mask)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o640
