"""Formats of weights in device memory, and what a weight matrix takes in each."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from npurt.abi.dtypes import DType

TABLE_BYTES = 8
"""A scale and a bias in f32 for each output channel, which the matrix engine applies to its sums."""


@dataclass(frozen=True)
class WeightFormat:
    """How weight matrices lie in device memory. bits: of a number; table: bytes for each output channel.

    floats: type of activations, caches and all other constants. compiled: whether it is a `--precision` of
    `npuc compile`; codes it takes from the file alone.
    """

    name: str
    bits: int
    table: int
    floats: DType
    compiled: bool

    def matrix_bytes(self, channels: int, depth: int, count: int = 1) -> int:
        """Of `count` matrices; the codes of a channel fill whole bytes."""
        return count * channels * (ceil(depth * self.bits / 8) + self.table)

    @property
    def quantised(self) -> bool:
        """Whether matrices are codes and not floats."""
        return self.bits != 8 * self.floats.nbytes


FORMATS = {
    found.name: found
    for found in (
        WeightFormat("f16", 16, 0, DType.F16, True),
        WeightFormat("f32", 32, 0, DType.F32, True),
        WeightFormat("int8", 8, TABLE_BYTES, DType.F16, False),
        WeightFormat("int4", 4, TABLE_BYTES, DType.F16, False),
    )
}
"""By name. int8 and int4: codes with one scale per output channel, multiplied as codes at the rate of f16."""
