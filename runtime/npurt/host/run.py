"""Runs a program of entries and steps of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from npurt.errors import DeviceError
from npurt.host.program import HostProgram, HostStep, Value
from npurt.host.table import HOST_OPS
from npurt.image import Image
from npurt.ports import GRAPH_ARRAYS

Arrays = Mapping[str, np.ndarray]


def run_program(
    program: HostProgram, image: Image, run: Callable[[str, Arrays], dict[str, np.ndarray]], inputs: Arrays
) -> dict[str, np.ndarray]:
    """The outputs by name, in the element types of the graph. run: of one entry.

    Errors: DeviceError for inputs that are not those of the program, for integers between the entries that the device
    cannot hold, and where the host has no memory for a step.
    """
    values = _inputs(program, inputs)
    for step in program.steps:
        if isinstance(step, HostStep):
            values[step.output] = run_step(step, values)
        else:
            ports = image.entries[step].ports.inputs
            values.update(run(step, {port.name: values[port.name] for port in ports}))
    return {name: values[name] for name in program.outputs}


def check_whole(name: str, n_past: int, n_new: int | None) -> None:
    """DeviceError for a step of rows: a program with steps of the host has no states."""
    if n_past or n_new is not None:
        raise DeviceError(f"program {name} has steps of the host and no states: it takes no n_past and no n_new")


def run_step(step: HostStep, values: Arrays) -> np.ndarray:
    """One step: computed in float64 or in its integers, rounded once."""
    inputs = [values[given] if isinstance(given, str) else given for given in step.inputs]
    try:
        with np.errstate(all="ignore"):
            result = HOST_OPS[step.op].run(step.attributes, inputs, step.shape)
            return np.ascontiguousarray(result.astype(GRAPH_ARRAYS[step.graph_dtype])).reshape(step.shape)
    except MemoryError:
        raise DeviceError(f"node {step.node} ({step.op}) needs more memory than this host gives") from None


def _inputs(program: HostProgram, inputs: Arrays) -> dict[str, np.ndarray]:
    missing = [name for name in program.inputs if name not in inputs]
    extra = [name for name in inputs if name not in program.inputs]
    if missing or extra:
        what = f"input {missing[0]!r} is missing" if missing else f"there is no input {extra[0]!r}"
        raise DeviceError(f"program {program.name}: {what}; its inputs are {', '.join(program.inputs) or 'none'}")
    return {name: _given(program.name, name, value, np.asarray(inputs[name])) for name, value in program.inputs.items()}


def _given(program: str, name: str, value: Value, array: np.ndarray) -> np.ndarray:
    """An input in the type of the graph."""
    if array.shape != value.shape or array.dtype.kind not in "fiub":
        raise DeviceError(
            f"program {program}, input {name!r}: {array.dtype}{list(array.shape)} was given, "
            f"{value.graph_dtype}{list(value.shape)} is due"
        )
    wanted = GRAPH_ARRAYS.get(value.graph_dtype, array.dtype)
    if array.dtype.kind in "iu" and np.dtype(wanted).kind in "iu" and array.size:
        held = np.iinfo(wanted)
        if int(array.min()) < held.min or int(array.max()) > held.max:
            raise DeviceError(f"program {program}, input {name!r}: {value.graph_dtype} does not hold its values")
    with np.errstate(all="ignore"):
        return array.astype(wanted)
