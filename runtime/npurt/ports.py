"""Tensors of the caller to and from the element types of device memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from npurt import numerics
from npurt.abi.dtypes import DType
from npurt.errors import DeviceError
from npurt.metadata import Port

# what a caller gets for each element type of the graph; for types that NumPy does not have, one that holds their values
GRAPH_ARRAYS = {
    "f32": np.float32, "f16": np.float16, "bf16": np.float32, "f64": np.float64, "f8e4m3fn": np.float32,
    "f8e4m3fnuz": np.float32, "f8e5m2": np.float32, "f8e5m2fnuz": np.float32, "f4e2m1": np.float32,
    "f8e8m0": np.float32, "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i4": np.int8,
    "i2": np.int8, "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8, "u4": np.uint8,
    "u2": np.uint8, "bool": np.bool_,
}  # fmt: skip


def check_inputs(entry: str, ports: tuple[Port, ...], inputs: Mapping[str, np.ndarray]) -> None:
    """DeviceError unless the names are those of the ports, every shape is right and integers fit the device's type."""
    names = [port.name for port in ports]
    missing = [name for name in names if name not in inputs]
    extra = [name for name in inputs if name not in names]
    if missing or extra:
        what = f"input {missing[0]!r} is missing" if missing else f"there is no input {extra[0]!r}"
        raise DeviceError(f"entry {entry}: {what}; its inputs are {', '.join(names) or 'none'}")
    for port in ports:
        array = np.asarray(inputs[port.name])
        if array.shape != port.shape or array.dtype.kind not in "fiub":
            raise DeviceError(
                f"entry {entry}, input {port.name!r}: {array.dtype}{list(array.shape)} was given, "
                f"{port.graph_dtype}{list(port.shape)} is due"
            )
        _check_range(entry, port, array)


def _check_range(entry: str, port: Port, array: np.ndarray) -> None:
    """An integer that the device's element type cannot hold is refused: saturated, the answer would be wrong."""
    if array.dtype.kind not in "iu" or port.dtype.is_float or port.dtype is DType.BOOL or not array.size:
        return
    held, given = np.iinfo(port.dtype.storage), np.iinfo(array.dtype)
    if held.min <= given.min and given.max <= held.max:
        return
    low, high = int(array.min()), int(array.max())
    if low < held.min or high > held.max:
        raise DeviceError(
            f"entry {entry}, input {port.name!r}: its values go from {low} to {high}, and the device holds "
            f"{port.graph_dtype} in {port.dtype.label}, from {held.min} to {held.max}"
        )


def to_device(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Values of any NumPy number type as an array of ``dtype.storage``, rounded or saturated once.

    bf16 memory takes raw bits as uint16, or numbers of any other type.
    """
    if values.dtype == dtype.storage:
        return values
    with np.errstate(all="ignore"):
        if values.dtype == np.float16:
            return numerics.store(numerics.load(values, DType.F16), dtype)
        if values.dtype.kind in "iub" and values.dtype != np.bool_:
            values = values.astype(np.int64)
        return numerics.store(values, dtype)


def from_device(memory: np.ndarray, dtype: DType, graph_dtype: str) -> np.ndarray:
    """A copy of device memory (an array of ``dtype.storage``) in the element type of the graph."""
    with np.errstate(all="ignore"):
        if memory.dtype == GRAPH_ARRAYS[graph_dtype]:
            return memory.copy()
        return numerics.load(memory, dtype).astype(GRAPH_ARRAYS[graph_dtype])
