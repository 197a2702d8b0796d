"""The blob that `run` and `exec` work on: a given one, a model compiled on the fly, or the cached embedded model."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npuc.cli.options import is_blob, note
from npuc.cli.progress import progress

if TYPE_CHECKING:
    from npuc.driver import CompileOptions

KEPT = 8  # newest blobs of the embedded model that stay in the cache
DEFAULT_MODEL = Path(__file__).resolve().parents[1] / "data" / "default_model"


@contextmanager
def blob_for(source: Path | None, options: Callable[[], CompileOptions], *, given: bool) -> Iterator[Path]:
    """The path of a blob for as long as the block lasts.

    source: a blob, a model, or None for the embedded model. options: called only where there is something to compile,
    as it imports the compiler. given: whether an option of compilation was given, which a finished blob refuses
    (click.UsageError).
    """
    if source is None:
        with _embedded(options()) as path:
            yield path
    elif is_blob(source):
        if given:
            raise click.UsageError(f"{source} is compiled already: options of compilation need a model")
        yield source
    else:
        with _scratch() as folder:
            yield _compile(source, folder / "model.npu", options())


@contextmanager
def _embedded(options: CompileOptions) -> Iterator[Path]:
    """The embedded model's blob, kept in the user's cache; in a temporary folder where that cannot be written."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        with _scratch() as scratch:
            yield _compile(DEFAULT_MODEL, scratch / "model.npu", options)
        return
    path = folder / f"default-{_key(options)}.npu"
    if not _is_whole(path):
        _compile(DEFAULT_MODEL, path, options)
        for old in sorted(folder.glob("default-*.npu"), key=lambda blob: blob.stat().st_mtime)[:-KEPT]:
            old.unlink(missing_ok=True)
    yield path


def _is_whole(path: Path) -> bool:
    """Whether a cached blob is there and undamaged; another is made in its place otherwise."""
    if not path.exists():
        return False
    import npurt

    try:
        npurt.load(path)
    except (npurt.BlobError, OSError):
        return False
    return True


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="npuc-") as folder:
        yield Path(folder)


def _compile(source: Path, blob: Path, options: CompileOptions) -> Path:
    from npuc.driver import compile_to_blob

    note(f"compiling {'the embedded model' if source == DEFAULT_MODEL else source.name}")
    with progress() as report:
        compile_to_blob(source, blob, options, report)
    return blob


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/npuc``, or ``~/.cache/npuc``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "npuc"


def _key(options: CompileOptions) -> str:
    """A digest of all that decides the blob's bytes: the model, the options and the compiler's own sources."""
    digest = hashlib.sha256(repr(options).encode())
    for path in [*_sources("npuc"), *_sources("npurt"), *_sources("npukernels")]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _sources(package: str) -> list[Path]:
    """The package's files but for byte code, in a stable order."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None, f"{package} is not installed"
    folder = Path(spec.submodule_search_locations[0])
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
