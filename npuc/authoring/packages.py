"""Kernels of installed packages: the entry-point group ``npuc.kernels``, one entry for each kernel.

[project.entry-points."npuc.kernels"]
squared_relu = "my_package.activations:squared_relu"
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from npuc.authoring.errors import KernelSourceError
from npuc.tile import Kernel

GROUP = "npuc.kernels"


@dataclass(frozen=True)
class Offered:
    """A kernel that an installed package names. origin: the package and its version."""

    name: str
    origin: str
    entry: EntryPoint


def offers() -> dict[str, Offered]:
    """By name, in the order of the names. Nothing is imported. Of two packages with one name, the first by package."""
    found: dict[str, Offered] = {}
    rows = []
    for entry in entry_points(group=GROUP):
        package = entry.dist
        origin = "unknown package" if package is None else f"{package.name} {package.version}"
        rows.append((entry.name, origin, entry))
    for name, origin, entry in sorted(rows, key=lambda row: row[:2]):
        found.setdefault(name, Offered(name, origin, entry))
    return found


def load_offer(offered: Offered) -> tuple[ModuleType, Kernel]:
    """The kernel and its module. Errors: KernelSourceError."""
    try:
        kernel = offered.entry.load()
    except Exception as error:
        raise KernelSourceError(
            f"kernel {offered.name} of {offered.origin} ({offered.entry.value}) cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not isinstance(kernel, Kernel):
        raise KernelSourceError(
            f"kernel {offered.name} of {offered.origin}: {offered.entry.value} is {type(kernel).__name__}, not a "
            "function under @tile.kernel"
        )
    return sys.modules[kernel.function.__module__], kernel
