"""Strided views of a kernel's memory, before the kernel's arrays and buffers are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from npuc.tile.affine import Affine
from npurt.abi.dtypes import DType


@dataclass(frozen=True, slots=True)
class View:
    """A view of slot number `slot` (the kernel's arrays, then its local buffers).

    offset: bytes, affine in the program ids. shape: elements. stride: bytes, 0 repeats. on_chip: not in DDR.
    """

    slot: int
    offset: Affine
    dtype: DType
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    on_chip: bool

    @property
    def rows_adjacent(self) -> bool:
        """Whether the elements of a row lie side by side."""
        return not self.shape or self.shape[-1] <= 1 or self.stride[-1] == self.dtype.nbytes

    def part(self, index: Sequence[Affine], shape: tuple[int, ...]) -> View:
        """The part that starts at element `index`; step fields in the index are left to the transfer."""
        offset = self.offset
        for first, stride in zip(index, self.stride, strict=True):
            offset = offset + first.without_step() * stride
        return replace(self, offset=offset, shape=shape)

    def transposed(self, permutation: Sequence[int]) -> View:
        return replace(
            self, shape=tuple(self.shape[d] for d in permutation), stride=tuple(self.stride[d] for d in permutation)
        )

    def sliced(self, axis: int, start: int, extent: int) -> View:
        shape = (*self.shape[:axis], extent, *self.shape[axis + 1 :])
        return replace(self, offset=self.offset + start * self.stride[axis], shape=shape)

    def broadcast(self, shape: tuple[int, ...]) -> View:
        """Dimensions of size 1, and new ones in front, repeat."""
        lead = len(shape) - len(self.shape)
        stride = [0] * lead
        for size, own, step in zip(shape[lead:], self.shape, self.stride, strict=True):
            stride.append(step if size == own else 0)
        return replace(self, shape=shape, stride=tuple(stride))

    def reshaped(self, shape: tuple[int, ...]) -> View | None:
        """The same elements in row-major order under another shape, or None where no strides can say that."""
        if 0 in shape:
            return replace(self, shape=shape, stride=(0,) * len(shape))
        source = [(n, s) for n, s in zip(self.shape, self.stride, strict=True) if n != 1]
        blocks: list[tuple[int, int]] = []  # runs of dimensions that step as one: (elements, stride of the last)
        for n, s in source:
            if blocks and blocks[-1][1] == n * s:
                blocks[-1] = (blocks[-1][0] * n, s)
            else:
                blocks.append((n, s))
        stride = [0] * len(shape)
        left, step = 1, 0
        for d in reversed(range(len(shape))):
            if shape[d] == 1:
                stride[d] = 0
                continue
            if left == 1:
                left, step = blocks.pop()
            if left % shape[d]:
                return None
            stride[d] = step
            left //= shape[d]
            step *= shape[d]
        return replace(self, shape=shape, stride=tuple(stride))

    def span(self) -> tuple[int, int]:
        """First byte and one past the last, relative to the affine part of the offset."""
        low = high = self.offset.const
        for extent, stride in zip(self.shape, self.stride, strict=True):
            low, high = low + min((extent - 1) * stride, 0), high + max((extent - 1) * stride, 0)
        return low, high + self.dtype.nbytes

    def meets(self, other: View) -> bool:
        """Whether the two may share a byte (for equal program ids)."""
        if self.slot != other.slot or 0 in self.shape or 0 in other.shape:
            return False
        if self.offset.terms != other.offset.terms:
            return True
        (a, b), (c, d) = self.span(), other.span()
        return a < d and c < b
