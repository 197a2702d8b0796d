"""`npuc doctor`."""

from __future__ import annotations

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version

import click

from npuc import __version__
from npuc.cli.blobs import DEFAULT_MODEL, cache_folder
from npuc.cli.errors import DIFFERENT
from npuc.cli.options import json_option

CORE = ("click", "lief", "numpy", "onnx", "onnx-ir")
EXTRAS = {"chat": ("tokenizers", "jinja2"), "check": ("onnxruntime",), "test": ("pytest", "hypothesis", "pyelftools")}


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Check this installation: Python, packages, the embedded model, the cache folder.

    Exit code 1 where something is missing that npuc cannot work without.
    """
    packages = {name: _version(name) for name in (*CORE, *(name for names in EXTRAS.values() for name in names))}
    missing = [name for name in CORE if packages[name] is None]
    model = (DEFAULT_MODEL / "model.onnx").is_file()
    good = not missing and model
    if as_json:
        report = {"npuc": __version__, "python": platform.python_version(), "packages": packages, "model": model}
        click.echo(json.dumps({**report, "cache": str(cache_folder()), "good": good}))
    else:
        _show(packages, model)
    if not good:
        raise click.exceptions.Exit(DIFFERENT)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _show(packages: dict[str, str | None], model: bool) -> None:
    click.echo(f"npuc {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name in CORE:
        click.echo(f"  {name:12} {packages[name] or 'missing: reinstall npuc'}")
    for extra, names in EXTRAS.items():
        for name in names:
            click.echo(f"  {name:12} {packages[name] or f'not installed (extra npuc[{extra}])'}")
    click.echo(f"embedded model: {'present' if model else 'missing: reinstall npuc'}")
    folder = cache_folder()
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    kept = "" if os.access(nearest, os.W_OK) else " (not writable: the embedded model is compiled anew each time)"
    click.echo(f"cache: {folder}{kept}")
