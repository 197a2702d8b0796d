"""Trying a kernel on its example: eager, on the device, against its reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.authoring.device import run_on_device
from npuc.authoring.errors import KernelSourceError
from npuc.authoring.program import Roles, roles_of, with_advice
from npuc.schedule import OverflowRefused
from npuc.tile import Example, Kernel
from npuc.tile.example import bound_of
from npuc.tile.types import ArrayType
from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.target import Target

Values = np.ndarray[Any, np.dtype[Any]]
SEED = 1


@dataclass(frozen=True)
class Written:
    """What became of one array that the kernel writes.

    error: largest difference from the reference as a part of the reference's largest value (of integers: how many
    differ); bound: what is allowed; at: where. equal: whether the device wrote the eager run's very bits.
    """

    name: str
    type: str
    error: float
    bound: float
    at: tuple[int, ...]
    found: float
    expected: float
    equal: bool

    @property
    def good(self) -> bool:
        return self.equal and self.error <= self.bound


@dataclass(frozen=True)
class Trial:
    """One example tried."""

    kernel: str
    written: tuple[Written, ...]

    @property
    def good(self) -> bool:
        return all(each.good for each in self.written)


def try_example(kernel: Kernel, example: Example, target: Target, params: dict[str, Any] | None = None) -> Trial:
    """Runs an example eagerly and as a blob on the device of `target`.

    params: instead of the example's. Errors: KernelError of the kernel, KernelSourceError where the reference does not
    fit what the kernel writes.
    """
    chosen = dict(example.params) if params is None else params
    types = example.types
    trace = kernel.trace(types, chosen)
    roles = roles_of(kernel, trace, chosen)
    inputs = make_arrays(example.arrays)
    eager = [None if array is None else array.copy() for array in inputs]
    kernel.eager(*eager, step=dict(example.step), **chosen)
    try:
        device = run_on_device(trace, inputs, roles, target, dict(example.step))
    except OverflowRefused as error:
        raise with_advice(error, kernel, types, chosen) from error
    expected = _expected(kernel, example, inputs, roles)
    written = []
    for number, want in zip(roles.written, expected, strict=True):
        type_, mine, theirs = types[number], eager[number], device[number]
        assert type_ is not None and mine is not None and theirs is not None, "only arrays that are there are written"
        same = mine.tobytes() == theirs.tobytes()
        written.append(_compare(roles.names[number], type_, mine, want, bound_of(example, type_.dtype), same))
    return Trial(kernel.name, tuple(written))


def make_arrays(given: Sequence[Values | ArrayType | None]) -> list[Values | None]:
    """NumPy arrays for an example: copies of those that it holds, seeded normal numbers for float types, else zeros."""
    random = np.random.default_rng(SEED)
    made: list[Values | None] = []
    for array in given:
        if array is None or isinstance(array, np.ndarray):
            made.append(None if array is None else np.array(array, order="C"))
        elif array.dtype.is_float:
            numbers = random.standard_normal(array.shape).astype(np.float32)
            made.append(numerics.store(numbers, array.dtype))
        else:
            made.append(np.zeros(array.shape, np.bool_ if array.dtype is DType.BOOL else array.dtype.storage))
    return made


def _expected(kernel: Kernel, example: Example, inputs: Sequence[Values | None], roles: Roles) -> list[Values]:
    """What the reference says, one array for each that is written."""
    types = example.types
    read = [_wide(inputs[n], types[n]) for n in roles.read]
    try:
        made = example.reference(*read)
    except Exception as error:
        names = ", ".join(roles.names[n] for n in roles.read)
        raise KernelSourceError(
            f"kernel {kernel.name}: the reference fails on the arrays that the kernel reads ({names}): "
            f"{type(error).__name__}: {error}"
        ) from error
    results = list(made) if isinstance(made, tuple) else [made]
    writes = [roles.names[n] for n in roles.written]
    if len(results) != len(writes):
        raise KernelSourceError(
            f"kernel {kernel.name} writes {', '.join(writes) or 'nothing'}; the reference gives {len(results)} arrays"
        )
    for name, number, result in zip(writes, roles.written, results, strict=True):
        type_ = types[number]
        assert type_ is not None, "only arrays that are there are written"
        if np.shape(result) != type_.shape:
            raise KernelSourceError(
                f"kernel {kernel.name}: {name} is {type_}, the reference gives shape {list(np.shape(result))}"
            )
    return [np.asarray(result) for result in results]


def _wide(array: Values | None, type_: ArrayType | None) -> Values:
    """An array as float64, or as int64."""
    assert array is not None and type_ is not None, "only arrays that are there are read"
    return numerics.load(array, type_.dtype).astype(np.float64 if type_.dtype.is_float else np.int64)


def _compare(name: str, type_: ArrayType, found: Values, want: Values, bound: float, equal: bool) -> Written:
    values = _wide(found, type_)
    with np.errstate(all="ignore"):
        gap = np.abs(values - want)
    gap = np.where((values == want) | (np.isnan(values) & np.isnan(want)), 0.0, gap)
    gap = np.where(np.isnan(gap), np.inf, gap)  # a NaN or infinity where there is none in the reference
    at = tuple(int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape)) if gap.size else ()
    finite = np.abs(want)[np.isfinite(want)] if want.size else np.zeros(0)
    scale = float(finite.max(initial=0.0)) or 1.0
    error = float(gap.max(initial=0.0)) / scale if type_.dtype.is_float else float(np.count_nonzero(gap))
    first, second = (float(values[at]), float(want[at])) if gap.size else (0.0, 0.0)
    return Written(name, str(type_), error, bound, at, first, second, equal)
