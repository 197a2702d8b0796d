"""The OpenBLAS that NumPy has loaded: the kernel set it chose for this processor, and its threads.

NumPy offers no call for either. The library's own functions are asked; where NumPy computes with another BLAS, or has
its OpenBLAS under names that are not known here, nothing is known and nothing can be set.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
# NumPy's wheels rename the functions (64 bit integers: a suffix); a system's OpenBLAS has the plain names
_NAMES = ("scipy_openblas_{}64_", "scipy_openblas_{}", "openblas_{}64_", "openblas_{}")


@dataclass(frozen=True)
class Blas:
    """kernel: the set of kernels in use, such as Haswell or SkylakeX. threads: how many a large product may use."""

    kernel: str
    threads: int


def loaded() -> Blas | None:
    """What NumPy's OpenBLAS says about itself; None where that cannot be found out."""
    corename, threads = _function("get_corename"), _function("get_num_threads")
    if corename is None or threads is None:
        return None
    corename.restype = ctypes.c_char_p
    name: bytes = corename()
    return Blas(name.decode(), int(threads()))


def one_thread() -> None:
    """One thread from now on, unless OPENBLAS_NUM_THREADS says otherwise.

    For exact mode: its products are one tile each, so small that threads only wait for each other; on a busy host two
    are three to ten times slower than one. The same as the variable set to 1, which would have to be set before NumPy
    is imported.
    """
    setter = None if os.environ.get(THREADS_VARIABLE) else _function("set_num_threads")
    if setter is not None:
        setter.restype = None
        setter(1)


def _function(what: str) -> Any | None:
    """A function of the library, by the part of its name that says what it does."""
    for library in _libraries():
        for name in _NAMES:
            found = getattr(library, name.format(what), None)
            if found is not None:
                return found
    return None


def _libraries() -> Iterator[ctypes.CDLL]:
    """Handles in which the functions may be found; none of them loads anything that NumPy has not loaded.

    The handle of NumPy's own module finds what the module links with, but on Windows, where only the DLL itself does.
    """
    module = import_module("numpy._core._multiarray_umath").__file__
    bundled = sorted(Path(np.__file__).parents[1].joinpath("numpy.libs").glob("*openblas*.dll"))
    for path in (str(module), *map(str, bundled)):
        try:
            yield ctypes.CDLL(path)
        except OSError:
            continue
