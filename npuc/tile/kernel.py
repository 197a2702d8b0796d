"""Kernels: decorated functions, their traces, and the cache that traces equal signatures once."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from npuc.tasks import Origin, Region, Task
from npuc.tile import eager
from npuc.tile.affine import SplitNeeded
from npuc.tile.arrays import Array
from npuc.tile.errors import KernelError, author_faults
from npuc.tile.instantiate import Stamper
from npuc.tile.lower import lower
from npuc.tile.plan import Plan, plan
from npuc.tile.record import grid_of, record
from npuc.tile.template import Template
from npuc.tile.trace import Memory
from npuc.tile.types import ArrayType

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Trace:
    """A kernel traced for one signature: a task template for each class of programs that have equal tile sizes."""

    kernel: str
    types: tuple[ArrayType | None, ...]
    grid: tuple[int, ...]
    templates: tuple[Template, ...]

    def plan(self) -> Plan:
        """Buffers, bytes and tasks of the program that needs most."""
        return self._plan

    @cached_property
    def _stamper(self) -> Stamper:
        return Stamper(self.templates, self.grid)

    @cached_property
    def _plan(self) -> Plan:
        return plan(self.kernel, math.prod(self.grid), self.templates)

    def instantiate(self, regions: Sequence[Region | None], origin: Origin, prefix: str) -> list[Task]:
        """The tasks of all programs in order, with fresh local buffers named after `prefix`.

        regions: one for each array argument, of the dtype, shape and strides it was traced for.
        """
        if len(regions) != len(self.types):
            raise KernelError(
                f"kernel {self.kernel} was traced for {len(self.types)} arrays, got {len(regions)} regions"
            )
        for number, (region, type_) in enumerate(zip(regions, self.types, strict=True)):
            given = None if region is None else (region.dtype, region.shape, region.stride)
            wanted = None if type_ is None else (type_.dtype, type_.shape, type_.stride)
            if given != wanted:
                raise KernelError(f"kernel {self.kernel}, array {number}: region {given} where {wanted} was traced")
        return self._stamper.tasks(regions, origin, prefix)


@dataclass
class TraceCache:
    """Traces by kernel, types and parameters. traces: how many were really made."""

    traces: int = 0
    _known: dict[tuple[object, ...], Trace] = field(default_factory=dict)

    def get(self, key: tuple[object, ...], make: Callable[[], Trace]) -> Trace:
        """The trace of a key, made at its first use."""
        if key not in self._known:
            self._known[key] = make()
            self.traces += 1
        return self._known[key]


class Kernel:
    """A function in the tile language. Called inside another kernel, it is traced there (composition)."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.name = function.__name__
        self.__doc__ = function.__doc__
        self._signature = inspect.signature(function)

    def __call__(self, *arrays: Any, **params: Any) -> None:
        self.function(*arrays, **params)

    def __repr__(self) -> str:
        return f"Kernel({self.name})"

    def trace(
        self, types: Sequence[ArrayType | None], params: Mapping[str, Any], *, cache: TraceCache | None = None
    ) -> Trace:
        """The kernel for arrays of these types (None: an optional array that is absent) and static parameters.

        Parameters must be hashable; functions among them count as equal when they compare equal, so pass the same
        function (or an equal frozen dataclass with __call__) for equal work.
        """
        for name, value in params.items():
            if not isinstance(value, Hashable):
                raise KernelError(f"kernel {self.name}: parameter {name} must be hashable, got {type(value).__name__}")
        # 1, 1.0 and True are equal but mean different registers: the type is part of the key
        static = tuple((name, type(params[name]), params[name]) for name in sorted(params))
        key = (self.function, tuple(types), static)
        return (cache or TraceCache()).get(key, lambda: self._trace(tuple(types), params))

    def plan(self, types: Sequence[ArrayType | None], params: Mapping[str, Any]) -> Plan:
        """Buffers, bytes and tasks of the program that needs most: `trace(types, params).plan()`."""
        return self.trace(types, params).plan()

    def eager(self, *arrays: Any, step: Mapping[str, int] | None = None, **params: Any) -> None:
        """Runs the kernel at once on NumPy arrays (bf16 as uint16), writing the ones it stores into.

        step: {"n_past": ..., "n_new": ...}. The numbers are the device's, bit for bit.
        """
        self.argument_names(len(arrays), params)
        eager.run(self.function, arrays, params, step or {})

    def _trace(self, types: tuple[ArrayType | None, ...], params: Mapping[str, Any]) -> Trace:
        names = self.argument_names(len(types), params)
        arrays = [None if type_ is None else Array(Memory(type_, slot, False)) for slot, type_ in enumerate(types)]

        def body() -> None:
            with author_faults():
                self.function(*arrays, **params)

        grid = grid_of(body)
        templates: list[Template] = []
        waiting = _tail_classes(grid)
        while waiting:
            ranges = waiting.pop(0)
            try:
                templates.append(lower(record(body, ranges), self.name, types, names))
            except SplitNeeded as split:
                waiting[:0] = _halves(ranges, split.axis)
        return Trace(self.name, types, grid, tuple(templates))

    def argument_names(self, count: int, params: Mapping[str, Any]) -> list[str]:
        """The name of each array argument; checks the call against the function's signature."""
        try:
            bound = self._signature.bind(*range(count), **params)
        except TypeError as error:
            raise KernelError(f"kernel {self.name}{self._signature}: {error}") from None
        names: list[str] = []
        for parameter, value in bound.arguments.items():
            kind = self._signature.parameters[parameter].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                names += [f"{parameter}{number}" for number in range(len(value))]
            elif kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
                names.append(parameter)
        return names


def kernel(function: Callable[..., None]) -> Kernel:
    """Makes a function a kernel: array arguments first, then static keyword parameters after `*`."""
    return Kernel(function)


def _tail_classes(grid: tuple[int, ...]) -> list[Ranges]:
    """Classes to try first: for each axis all programs but the last, whose tile may be short, and the last."""
    axes = [[(0, extent - 2)] * (extent > 1) + [(extent - 1, extent - 1)] * (extent > 0) for extent in grid]
    return list(product(*axes))


def _halves(ranges: Ranges, axis: int) -> list[Ranges]:
    first, last = ranges[axis]
    middle = (first + last) // 2
    return [(*ranges[:axis], part, *ranges[axis + 1 :]) for part in ((first, middle), (middle + 1, last))]
