"""A form of a kernel: one meaning of its arrays and parameters, with a call to try it by and a float64 reference."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npuc import tile as t

Values = Any  # NumPy arrays, whose operators give arrays again
FLOATS = (t.f16, t.f32, t.bf16)
TILE = 8


@dataclass(frozen=True)
class Form:
    """kernel: its name in the registry. form: in words. dtypes: element types of its main arrays.

    make(dtype, size): an example whose blocks are `TILE` along an axis of `size`, so that sizes around multiples of
    TILE give every kind of short block. steps: whether it depends on the step block.
    """

    kernel: str
    form: str
    dtypes: tuple[t.DType, ...]
    make: Callable[[t.DType, int], t.Example]

    def example(self, dtype: t.DType, size: int = 3 * TILE) -> t.Example:
        """Errors: ValueError for a type that the form does not list."""
        if dtype not in self.dtypes:
            known = ", ".join(each.label for each in self.dtypes)
            raise ValueError(f"{self.kernel}, {self.form}: no {dtype.label}; there are {known}")
        return self.make(dtype, size)
