"""What the runtime knows of an operator of the host: attributes, the shape of its result, how it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]
FLOATS = ("f32", "f16", "f64")
INTEGERS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
MAX_ELEMENTS = 1 << 31
MAX_SIZE = 1 << 31  # of a number in an attribute


class StepFault(ValueError):
    """A step that the operator does not allow; the message says why."""


@dataclass(frozen=True)
class HostOp:
    """One operator with one result, whose element type is that of the first input.

    attributes: by name what is allowed: "int", "ints", "floats", "text" or a tuple of choices; each may be left out.
    inputs: the fewest and the most. types: element types of each input. shape: (attributes, shapes of the inputs) to
    the result's, StepFault where they do not fit. run: (attributes, inputs, shape of the result) to the result, in any
    type that holds it. what: a line for people.
    """

    attributes: Mapping[str, str | tuple[str | int, ...]]
    inputs: tuple[int, int]
    types: tuple[str, ...]
    shape: Callable[[Attributes, Sequence[Shape]], Shape]
    run: Callable[[Attributes, Sequence[np.ndarray], Shape], np.ndarray]
    what: str


def check_attributes(op: HostOp, given: Any) -> None:
    """StepFault for an attribute that the operator has not, or a value that it does not take."""
    if not isinstance(given, Mapping):
        raise StepFault("the attributes are no object")
    for name, value in given.items():
        allowed = op.attributes.get(name)
        if allowed is None:
            raise StepFault(f"there is no attribute {name!r}; it has {', '.join(op.attributes) or 'none'}")
        if isinstance(allowed, tuple):
            if isinstance(value, bool) or not isinstance(value, (str, int)) or value not in allowed:
                raise StepFault(f"attribute {name!r} is none of {', '.join(map(str, allowed))}")
        elif not _KINDS[allowed](value):
            raise StepFault(f"attribute {name!r} is not of kind {allowed}")


def _is_int(value: Any) -> bool:
    return type(value) is int and abs(value) < MAX_SIZE


def _is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MAX_SIZE


_KINDS: Mapping[str, Callable[[Any], bool]] = {
    "int": _is_int,
    "ints": lambda value: isinstance(value, list) and all(map(_is_int, value)),
    "floats": lambda value: isinstance(value, list) and all(map(_is_positive, value)),
    "text": lambda value: isinstance(value, str),
}


def bounded(shape: Sequence[int], what: str) -> Shape:
    """The shape, or StepFault where an extent is negative or the host would have to hold too many elements."""
    if any(extent < 0 for extent in shape):
        raise StepFault(f"{what} would have the shape {list(shape)}")
    if prod(shape) > MAX_ELEMENTS:
        raise StepFault(f"{what} of shape {list(shape)} has more than {MAX_ELEMENTS} elements")
    return tuple(shape)
