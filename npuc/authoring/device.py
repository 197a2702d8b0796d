"""A kernel as a blob on the device: the way from its tasks to its numbers that a compiled model takes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.authoring.program import ENTRY, Roles, kernel_program
from npuc.check import check
from npuc.emit import write_blob
from npuc.graph.entry import StateSpec
from npuc.report.metadata import EntryPorts, Port, build_metadata
from npuc.tile import Trace
from npurt import Device, load
from npurt.target import Target

Values = np.ndarray[Any, np.dtype[Any]]


class CheckFailed(Exception):
    """The independent checker found a fault in the schedule of a kernel: a fault of the compiler."""


def run_on_device(
    trace: Trace, arrays: Sequence[Values | None], roles: Roles, target: Target, step: Mapping[str, int]
) -> list[Values | None]:
    """The arrays after a run of the kernel as a blob, in exact mode; those given stay as they are.

    arrays: C-contiguous, in storage types. step: n_past and n_new.
    """
    program = kernel_program(trace, roles, target, step, bring=True)
    faults = check(program, target)
    if faults:
        raise CheckFailed("\n".join(map(str, faults)))
    inputs, states = [], []
    for number, type_ in enumerate(trace.types):
        if type_ is None:
            continue
        name = roles.names[number]
        if number in roles.written:
            why = f"array {name} is written by the kernel"
            states.append(StateSpec(name, type_.shape, type_.dtype, "replace", None, None, None, None, why))
        else:
            inputs.append(Port(name, type_.dtype, type_.shape, type_.dtype.label))
    ports = EntryPorts(ENTRY, program.rows, program.capacity, tuple(inputs), ())
    metadata = build_metadata([ports], states, precision="f32", target=target.name)
    with tempfile.TemporaryDirectory(prefix="npuc-kernel-") as folder:
        path = Path(folder) / "kernel.npu"
        write_blob([program], states, metadata, {}, path)
        device = Device(load(path))
        for number, array in enumerate(arrays):
            if array is not None and number in roles.written:
                _put_state(device, roles.names[number], array)
            elif array is not None and number in roles.read:
                device.bind(f"{ENTRY}.in.{roles.names[number]}", np.ascontiguousarray(array).view(np.uint8))
        device.run_bound(ENTRY, n_past=step.get("n_past", 0), n_new=step.get("n_new"))
        return [
            None if array is None else _like(device.state(roles.names[n]), array) if n in roles.written else array
            for n, array in enumerate(arrays)
        ]


def _put_state(device: Device, name: str, array: Values) -> None:
    """The array's own bytes, NaNs and all: nothing is converted on the way."""
    device.bind(f"state.{name}", np.array(array, order="C"))


def _like(values: Values, array: Values) -> Values:
    return np.ascontiguousarray(values).view(array.dtype).reshape(array.shape)
