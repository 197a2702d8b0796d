"""`npuc doctor`."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuc import __version__
from npuc.cli.blobs import DEFAULT_MODEL, cache_folder
from npuc.cli.errors import DIFFERENT
from npuc.cli.options import json_option

if TYPE_CHECKING:
    from npurt.blas import Blas

CORE = ("click", "lief", "ml-dtypes", "numpy", "onnx", "onnx-ir", "protobuf")
# name: (packages, what they are for)
EXTRAS = {
    "chat": (("tokenizers", "jinja2"), "prompts as text"),
    "check": (("onnxruntime",), "npuc check"),
    "models": (("gguf",), "npuc models pull"),
    "rich": (("rich",), "progress as a bar"),
    "test": (("pytest", "hypothesis", "pyelftools"), "the tests"),
}
FORCING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
LITTLE_MEMORY = 1 << 30
"""Bytes; a compile of a model of 135 million weights needs about this much."""


@dataclass(frozen=True)
class Problem:
    """what is wrong, and the fix. fatal: npuc cannot work with it."""

    what: str
    fix: str
    fatal: bool = False


@dataclass(frozen=True)
class Cache:
    """The folder of the embedded model's blobs. size: bytes of the files in it."""

    folder: Path
    size: int
    writable: bool


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Check this installation: packages, BLAS, memory, the embedded model, the cache folder.

    Each problem is followed by what would fix it. Exit code 1 where npuc cannot work.
    """
    names = (*CORE, *(name for packages, _ in EXTRAS.values() for name in packages))
    packages = {name: _version(name) for name in names}
    blas = _blas() if packages["numpy"] else None
    cache = _cache()
    problems = _problems(packages, blas, cache)
    good = not any(problem.fatal for problem in problems)
    if as_json:
        click.echo(json.dumps({**_json(packages, blas, cache, problems), "good": good}))
    else:
        _show(packages, blas, cache, problems)
    if not good:
        raise click.exceptions.Exit(DIFFERENT)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _blas() -> Blas | None:
    from npurt import blas

    return blas.loaded()


def _cache() -> Cache:
    folder = cache_folder()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    files = folder.glob("*") if folder.is_dir() else ()
    size = sum(file.stat().st_size for file in files if file.is_file())
    return Cache(folder, size, nearest.is_dir() and os.access(nearest, os.W_OK))


def _problems(packages: dict[str, str | None], blas: Blas | None, cache: Cache) -> list[Problem]:
    from npuc.host import free_memory_bytes

    found = [
        Problem(f"the package {name} is missing", "reinstall npuc: pip install --force-reinstall npuc", fatal=True)
        for name in CORE if packages[name] is None
    ]  # fmt: skip
    if not (DEFAULT_MODEL / "model.onnx").is_file():
        found.append(Problem("the embedded model is missing", "reinstall npuc", fatal=True))
    if not cache.writable:
        what = f"the cache folder {cache.folder} cannot be written: the embedded model is compiled anew each time"
        found.append(Problem(what, "set XDG_CACHE_HOME to a folder of yours"))
    free = free_memory_bytes()
    if free is not None and free < LITTLE_MEMORY:
        what = f"{free / 1e9:.1f} GB of memory are free, which is little for more than small models"
        found.append(Problem(what, "end other programs"))
    if packages["numpy"] and blas is None:
        what = "NumPy's BLAS is no known OpenBLAS: its threads cannot be set for exact mode"
        found.append(Problem(what, "pip install --force-reinstall numpy brings one"))
    for name in FORCING:
        if os.environ.get(name):
            what = f"{name}={os.environ[name]} overrides what OpenBLAS finds out about this processor"
            found.append(Problem(what, f"unset {name}"))
    return found


def _json(packages: dict[str, str | None], blas: Blas | None, cache: Cache, problems: list[Problem]) -> dict[str, Any]:
    from npuc.host import cores, free_memory_bytes, memory_bytes

    return {
        "npuc": __version__, "python": platform.python_version(), "system": platform.system(),
        "machine": platform.machine(), "packages": packages,
        "extras": {extra: all(packages[name] for name in names) for extra, (names, _) in EXTRAS.items()},
        "blas_kernel": blas and blas.kernel, "threads": blas and blas.threads, "cores": cores(),
        "memory_bytes": memory_bytes(), "free_memory_bytes": free_memory_bytes(),
        "model": (DEFAULT_MODEL / "model.onnx").is_file(),
        "cache": {"folder": str(cache.folder), "bytes": cache.size, "writable": cache.writable},
        "problems": [{"what": problem.what, "fix": problem.fix, "fatal": problem.fatal} for problem in problems],
    }  # fmt: skip


def _show(packages: dict[str, str | None], blas: Blas | None, cache: Cache, problems: list[Problem]) -> None:
    from npuc.host import cores, free_memory_bytes, memory_bytes

    click.echo(f"npuc {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    click.echo("packages")
    for name in CORE:
        click.echo(f"  {name:12} {packages[name] or 'missing'}")
    click.echo("extras")
    for extra, (names, use) in EXTRAS.items():
        there = [f"{name} {packages[name]}" for name in names if packages[name]]
        missing = [name for name in names if not packages[name]]
        state = f"missing {', '.join(missing)}: pip install 'npuc[{extra}]'" if missing else ", ".join(there)
        click.echo(f"  {extra:12} {state} (for {use})")
    click.echo("host")
    click.echo(f"  {'blas':12} {'unknown' if blas is None else f'OpenBLAS {blas.kernel}, threads: {blas.threads}'}")
    click.echo(f"  {'cores':12} {cores()}")
    total, free = memory_bytes(), free_memory_bytes()
    sizes = [f"{size / 1e9:.1f} GB{word}" for size, word in ((total, ""), (free, " free")) if size is not None]
    click.echo(f"  {'memory':12} {', '.join(sizes) or 'unknown'}")
    click.echo(f"  {'cache':12} {cache.folder}, {cache.size / 1e6:.1f} MB")
    for problem in problems:
        click.echo(f"problem: {problem.what}\n  fix: {problem.fix}")
    if not problems:
        click.echo("no problems")
