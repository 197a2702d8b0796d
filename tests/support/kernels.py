"""Runs a kernel eagerly and as stamped tasks on byte buffers: both must agree to the last bit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.tasks import Buffer, Origin, Region, Task
from npuc.tile import ArrayType, Kernel, Trace, TraceCache
from npuc.tile.eager import array_type
from tests.support.taskrun import TaskRunner

Array = np.ndarray


def types_of(arrays: Sequence[Array | None], memory: Sequence[str] | str = "ddr") -> list[ArrayType | None]:
    """Array types of NumPy arrays; memory: one name for all, or one each."""
    names = [memory] * len(arrays) if isinstance(memory, str) else memory
    made: list[ArrayType | None] = []
    for array, name in zip(arrays, names, strict=True):
        if array is None:
            made.append(None)
            continue
        plain = array_type(array)
        made.append(ArrayType(plain.dtype, plain.shape, plain.stride, name))
    return made


def stamp(trace: Trace, arrays: Sequence[Array | None], runner: TaskRunner) -> list[Task]:
    """The trace's tasks over buffers that hold the arrays' own memory."""
    regions: list[Region | None] = []
    owners: dict[int, Buffer] = {}
    for number, (array, type_) in enumerate(zip(arrays, trace.types, strict=True)):
        if array is None or type_ is None:
            regions.append(None)
            continue
        owner = array if array.base is None else array.base
        if id(owner) not in owners:
            owners[id(owner)] = Buffer(f"a{number}", type_.memory, owner.nbytes)
            runner.bind(owners[id(owner)], owner)
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        regions.append(Region(owners[id(owner)], offset, type_.dtype, type_.shape, type_.stride))
    return trace.instantiate(regions, Origin(kernel=trace.kernel), "k")


def run_both(
    kernel: Kernel,
    arrays: Sequence[Array | None],
    *,
    memory: Sequence[str] | str = "ddr",
    step: Mapping[str, int] | None = None,
    cache: TraceCache | None = None,
    **params: Any,
) -> list[Array | None]:
    """Runs eagerly on copies and by tasks on other copies; asserts equal bytes; returns the arrays after the run.

    Strided arrays keep their strides: the memory that owns them is copied whole.
    """
    eager, tasks = _copies(arrays), _copies(arrays)
    kernel.eager(*eager, step=step, **params)
    runner = TaskRunner()
    trace = kernel.trace(types_of(arrays, memory), params, cache=cache)
    runner.run(stamp(trace, tasks, runner), step)
    for number, (first, second) in enumerate(zip(eager, tasks, strict=True)):
        if first is not None and second is not None:
            assert first.tobytes() == second.tobytes(), f"array {number}: eager and tasks differ"
    return eager


def _copies(arrays: Sequence[Array | None]) -> list[Array | None]:
    """Deep copies that keep strides and shared owners."""
    owners: dict[int, Array] = {}
    made: list[Array | None] = []
    for array in arrays:
        if array is None:
            made.append(None)
            continue
        owner = array if array.base is None else array.base
        copy = owners.setdefault(id(owner), owner.copy())
        offset = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        made.append(np.ndarray(array.shape, array.dtype, copy.reshape(-1).view(np.uint8), offset, array.strides))
    return made
