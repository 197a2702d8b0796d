"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from npuc.models.errors import PullError


def check_target(folder: Path, names: Collection[str], *, force: bool) -> Path:
    """The folder to make, links resolved. names: the files it will hold.

    PullError where it cannot be made: its parent is missing, it is a file, it is the current folder, or it is not
    empty. With `force` it may hold files of these names, and those alone, so that nothing else is ever deleted.
    """
    target = folder.resolve()
    if not target.parent.is_dir():
        raise PullError(f"{folder}: there is no folder {target.parent}")
    if not target.exists():
        return target
    if not target.is_dir():
        raise PullError(f"{folder}: this is a file, and a folder is to be made")
    if target == Path.cwd():
        raise PullError(f"{folder}: this is the current folder: name a new one in it, such as {folder / 'model'}")
    found = sorted(entry.name for entry in target.iterdir())
    strange = [name for name in found if name not in names]
    if found and not force:
        raise PullError(f"{folder}: the folder holds {found[0]}: --force replaces a model that was pulled before")
    if strange:
        raise PullError(f"{folder}: --force replaces a pulled model alone, and {strange[0]} is no part of one")
    return target


def check_space(target: Path, needed: int) -> None:
    """PullError unless the disk of the folder to make has `needed` bytes free."""
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise PullError(
            f"{target.parent}: {free / 1e6:,.0f} MB are free on this disk, and the model needs {needed / 1e6:,.0f} MB, "
            "download and copies included"
        )


@contextmanager
def staged(target: Path) -> Iterator[tuple[Path, Path]]:
    """Two empty folders beside `target`: what is written into the first becomes `target` when the block ends well, the
    second is for files that are not kept. Any exception, KeyboardInterrupt included, leaves `target` as it was."""
    stage = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    new, scratch, old = (stage / name for name in ("new", "scratch", "old"))
    new.mkdir(parents=True)
    scratch.mkdir()
    try:
        yield new, scratch
        _swap(new, target, old)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _swap(new: Path, target: Path, old: Path) -> None:
    """Puts `new` at `target`, and what was there at `old`; all back where that is interrupted."""
    try:
        if target.exists():
            os.rename(target, old)
        os.rename(new, target)
    except BaseException:
        if old.exists() and not target.exists():
            os.rename(old, target)
        raise
