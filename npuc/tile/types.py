"""Types of arrays and values in the tile language."""

from __future__ import annotations

import math
from dataclasses import dataclass

from npurt.abi.dtypes import DType

MAX_RANK = 4
DDR = "ddr"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array argument of a kernel: a strided view of device memory.

    shape: elements, outermost dimension first, rank <= 4. stride: bytes per step of each dimension. memory: "ddr", or
    any other name for an on-chip memory of the target ("cmx"). Two views of equal type share one trace.
    """

    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    memory: str = DDR

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.stride):
            raise ValueError(f"array of shape {self.shape} needs {len(self.shape)} strides, got {len(self.stride)}")
        if self.dtype.packed:
            raise ValueError(f"no array of {self.dtype.label}: its codes lie in an array of u8, see unpack()")
        if len(self.shape) > MAX_RANK:
            raise ValueError(
                f"array of shape {self.shape} has rank {len(self.shape)}; the device moves rank <= {MAX_RANK}"
            )

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def on_chip(self) -> bool:
        return self.memory != DDR

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.label}[{', '.join(map(str, self.shape))}]"


def dense_stride(dtype: DType, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Byte strides of an array without gaps, the last dimension adjacent."""
    strides = []
    step = dtype.nbytes
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def dense(dtype: DType, shape: tuple[int, ...], memory: str = DDR) -> ArrayType:
    """The type of an array without gaps."""
    return ArrayType(dtype, shape, dense_stride(dtype, shape), memory)


def register_type(dtype: DType) -> DType:
    """What a value of `dtype` is inside a SHAVE register: f32, i32 or bool; i64 is only copied and stays i64."""
    if dtype.is_float:
        return DType.F32
    return dtype if dtype in (DType.BOOL, DType.I64) else DType.I32
