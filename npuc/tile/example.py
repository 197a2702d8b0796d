"""What a kernel is tried with: arrays, parameters and what the result must be. A file offers one as example()."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.tile.eager import array_type
from npuc.tile.types import ArrayType
from npurt.abi.dtypes import DType

Values = np.ndarray[Any, np.dtype[Any]]
Reference = Callable[..., Any]

# Relative error that a result may have by its element type: a few units in the last place (f32 2^-24, f16 2^-11,
# bf16 2^-8), as a kernel rounds more than once.
RELATIVE = {DType.F32: 2.0**-19, DType.F16: 2.0**-8, DType.BF16: 2.0**-5}


@dataclass(frozen=True)
class Example:
    """One call of a kernel.

    arrays: in the order of the kernel's own; a NumPy array (bf16 as uint16), an ArrayType whose values may be anything
    (floats are then normal, seeded; integers zero), or None for an optional array that is absent. params: the static
    parameters. reference: takes the arrays that the kernel reads, as float64 or int64, and returns what it must write,
    one array or a tuple of them in the kernel's order. step: n_past and n_new. tolerance: the largest error, as a part
    of the largest value of the reference; None: a few units in the last place of the written type.
    """

    arrays: Sequence[Values | ArrayType | None]
    params: Mapping[str, Any]
    reference: Reference
    step: Mapping[str, int] = field(default_factory=dict)
    tolerance: float | None = None

    @property
    def types(self) -> list[ArrayType | None]:
        """The types of the arrays, all in DDR but where an ArrayType says otherwise."""
        return [array if array is None or isinstance(array, ArrayType) else array_type(array) for array in self.arrays]


def bound_of(example: Example, dtype: DType) -> float:
    """The largest relative error that an array of this type may have; 0 for integers."""
    if example.tolerance is not None:
        return example.tolerance
    return RELATIVE.get(dtype, 0.0)
