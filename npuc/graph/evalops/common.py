"""What the operator tables share: the function type, attribute access and the rules for narrow floats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray
Attributes = Mapping[str, Any]
Inputs = Sequence[Array | None]
OpFunction = Callable[[Inputs, Attributes], Array | tuple[Array, ...]]

_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


class EvaluationError(ValueError):
    """An operator cannot be computed on these values; the message says why."""


class OutOfTable(EvaluationError):
    """An index past the end of a constant table. rows: the rows there are."""

    def __init__(self, message: str, rows: int) -> None:
        super().__init__(message)
        self.rows = rows


def given(inputs: Inputs, index: int) -> Array | None:
    """The optional input at an index, or None."""
    return inputs[index] if index < len(inputs) else None


def required(inputs: Inputs, index: int) -> Array:
    """The input at an index."""
    value = given(inputs, index)
    if value is None:
        raise EvaluationError(f"input {index} is missing")
    return value


def ints(value: Array) -> list[int]:
    """The elements of an integer tensor."""
    return [int(v) for v in value.reshape(-1)]


def widened(value: Array) -> Array:
    """f16 and bf16 as f32, the type they are computed in; other types as they are."""
    return value.astype(np.float32) if value.dtype in _NARROW else value


def in_float32(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A float32 function for arrays of every float type: the result is rounded to the type of the argument."""
    return lambda x: function(x.astype(np.float32)).astype(x.dtype)
