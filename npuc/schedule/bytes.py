"""Which bytes a region touches on placed addresses, and whether two regions share one: the exact strided test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from npurt.abi.dtypes import DType

_BUDGET = 64  # nodes of one exact test; strides of one array nest, so 2 to 6 are usual


@dataclass(frozen=True, slots=True)
class Shape:
    """A region without its base: `run` adjacent bytes, repeated along each (extent, stride in bytes), largest stride
    first.

    back: bytes from the region's offset down to its lowest byte (negative strides). reach: bytes from there to the end.
    """

    back: int
    run: int
    steps: tuple[tuple[int, int], ...]
    reach: int


@lru_cache(maxsize=1 << 16)
def shape_of(dtype: DType, shape: tuple[int, ...], stride: tuple[int, ...]) -> Shape | None:
    """The canonical form of a region's bytes: adjacent dimensions joined, broadcast ones dropped; None for an empty
    region.
    """
    if 0 in shape:
        return None
    back = sum((extent - 1) * -step for extent, step in zip(shape, stride, strict=True) if step < 0)
    run = dtype.nbytes
    steps: list[tuple[int, int]] = []
    for step, extent in sorted(
        (abs(step), extent) for extent, step in zip(shape, stride, strict=True) if extent > 1 and step
    ):
        if not steps and step <= run:
            run = step * (extent - 1) + run
        elif steps and step == steps[-1][0] * steps[-1][1]:
            steps[-1] = (steps[-1][0], steps[-1][1] * extent)
        elif steps and step == steps[-1][0]:
            steps[-1] = (step, steps[-1][1] + extent - 1)
        else:
            steps.append((step, extent))
    dims = tuple((extent, step) for step, extent in reversed(steps))
    return Shape(back, run, dims, run + sum((extent - 1) * step for extent, step in dims))


def overlap(low_a: int, a: Shape, low_b: int, b: Shape) -> bool:
    """Whether two regions, given by their lowest byte and shape, share a byte.

    Row i of a and row j of b along one stride differ by i - j, which takes every value of one interval. So the test
    asks for one number per stride such that the runs meet. Answers True where the search exceeds its budget: a false
    edge is safe, a missing one is not.
    """
    if low_a >= low_b + b.reach or low_b >= low_a + a.reach:
        return False
    if not a.steps and not b.steps:
        return True
    ranges: dict[int, tuple[int, int]] = {}
    for extent, stride in a.steps:
        ranges[stride] = (0, extent - 1)
    for extent, stride in b.steps:
        high = ranges.get(stride, (0, 0))[1]
        ranges[stride] = (1 - extent, high)
    axes = [(stride, *ranges[stride]) for stride in sorted(ranges, reverse=True)]
    # the runs meet iff  -run_a < low_a - low_b + sum(m * stride) < run_b
    open_low, open_high = -a.run, b.run
    rest_low, rest_high = [0], [0]
    for stride, low, high in reversed(axes):
        rest_low.append(rest_low[-1] + low * stride)
        rest_high.append(rest_high[-1] + high * stride)
    stack = [(0, low_a - low_b)]
    for _ in range(_BUDGET):
        if not stack:
            return False
        depth, distance = stack.pop()
        if depth == len(axes):
            if open_low < distance < open_high:
                return True
            continue
        stride, low, high = axes[depth]
        left = len(axes) - depth - 1
        # keep distance + m * stride + [rest_low, rest_high] in touch with the open interval
        least = max(low, -((distance + rest_high[left] - open_low - 1) // stride))
        most = min(high, (open_high - 1 - distance - rest_low[left]) // stride)
        stack.extend((depth + 1, distance + m * stride) for m in range(least, most + 1))
    return True
