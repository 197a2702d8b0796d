"""What a file offers beside its kernel, examples and candidates, checked as it comes: the code is the author's."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.authoring.errors import KernelSourceError
from npuc.tile import ArrayType, Example, KernelError

Sizes = Mapping[str, Any]
Candidates = Callable[..., Iterable[Sizes]]

MAX_BYTES = 2**40  # of one array: far above any machine, far below what the times of a schedule can hold


def faults_of(error: BaseException) -> str:
    """An error of an author's code, with the place where Python raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def examples_of(offer: Callable[[], Any], name: str, origin: str) -> Iterator[Example]:
    """The examples that a file's function returns: one or several. Errors: KernelSourceError."""
    words = f"kernel {name}: {offer.__name__}() of {origin}"
    try:
        made = offer()
        listed = list(made) if isinstance(made, Iterable) else [made]
    except (Exception, SystemExit) as error:
        raise KernelSourceError(f"{words} fails: {faults_of(error)}") from error
    for example in listed:
        if not isinstance(example, Example):
            raise KernelSourceError(f"{words} gives {type(example).__name__}, not a tile.Example")
        _check(example, words)
        yield example


def _check(example: Example, words: str) -> None:
    if isinstance(example.arrays, np.ndarray | str) or not isinstance(example.arrays, Iterable):
        raise KernelSourceError(f"{words}: its arrays are {type(example.arrays).__name__}, not a tuple of arrays")
    if not isinstance(example.params, Mapping) or not isinstance(example.step, Mapping):
        raise KernelSourceError(f"{words}: its params and its step must be dicts")
    if not callable(example.reference):
        raise KernelSourceError(f"{words}: its reference is {type(example.reference).__name__}, not a function")
    for number, array in enumerate(example.arrays):
        if array is not None and not isinstance(array, np.ndarray | ArrayType):
            raise KernelSourceError(
                f"{words}: array {number} is {type(array).__name__}; give a NumPy array, a type such as "
                f"t.dense(t.f16, (8, 64)), or None where an optional array is absent"
            )
        if isinstance(array, np.ndarray) and array.ndim > 4:
            raise KernelSourceError(
                f"{words}: array {number} has {array.ndim} dimensions; a kernel's arrays have 1 to 4"
            )
    try:
        types = example.types
    except KernelError as error:
        raise KernelSourceError(f"{words}: {error}") from error
    for number, type_ in enumerate(types):
        if type_ is None:
            continue
        if type_.rank == 0:
            raise KernelSourceError(f"{words}: array {number} has no dimension; a kernel's arrays have 1 to 4")
        if type_.elements * type_.dtype.nbytes > MAX_BYTES:
            raise KernelSourceError(f"{words}: array {number}, {type_}, has more than 2^40 bytes")


def checked_candidates(offer: Candidates, name: str, origin: str) -> Candidates:
    """The same candidates; faults of the function are KernelSourceError when they are asked for."""
    words = f"kernel {name}: {offer.__name__}(types, params) of {origin}"

    def candidates(types: list[ArrayType | None], params: Sizes) -> list[Sizes]:
        try:
            made = list(offer(types, params))
        except (Exception, SystemExit) as error:
            raise KernelSourceError(f"{words} fails: {faults_of(error)}") from error
        for sizes in made:
            if not (isinstance(sizes, Mapping) and all(isinstance(key, str) for key in sizes)):
                raise KernelSourceError(f"{words} yields {sizes!r}, not a dict of tile sizes such as {{'bm': 64}}")
        return made

    return candidates
