"""The onnx.backend.base interface: prepares a model for the simulated NPU and runs it, in exact mode and float32.

The module itself is the backend, as tools that take one expect: `prepare`, `run_model`, `supports_device`.

A static program has shapes, axes and counts as constants. Where a model has them as inputs, it is compiled in the first
run with their values, and again for other values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.backend.base import Backend, BackendRep

import npurt
from npuc.driver import CompileOptions, compile_loaded
from npuc.emit import write_blob
from npuc.frontend import load_proto
from npuc.graph.given import deciding_inputs
from npurt.device import Device
from npurt.errors import DeviceError

DEVICES = ("CPU", "NPU")
"""Names that `supports_device` says yes to: the NPU is simulated on the CPU."""

Arrays = Mapping[str, np.ndarray]


class NpucRep(BackendRep):
    """A model that can be run. deciding: inputs whose values a program is compiled for."""

    def __init__(self, model: onnx.ModelProto, options: CompileOptions) -> None:
        self._model = model
        self._options = options
        loaded = load_proto(model)
        self._inputs = [str(value.name) for value in loaded.model.graph.inputs]
        self._outputs = [(str(value.name), value.dtype) for value in loaded.model.graph.outputs]
        self.deciding = tuple(deciding_inputs(loaded.model, llm=False))
        self._programs: dict[bytes, Device] = {}
        if not self.deciding:
            self._program({})

    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **kwargs: Any) -> tuple[np.ndarray, ...]:
        """The graph's outputs, in their order and element types. inputs: in their order, or by name; a trailing input
        that is missing is left out. Raises what the compiler and the device refuse.
        """
        by_name = inputs if isinstance(inputs, Mapping) else dict(zip(self._inputs, inputs, strict=False))
        lists = [
            name for name, value in by_name.items() if not isinstance(value, np.ndarray | np.generic | int | float)
        ]
        if lists:
            raise DeviceError(f"input {lists[0]!r} is no tensor; sequences and optional values have no device form")
        arrays = {name: np.asarray(value) for name, value in by_name.items()}
        device = self._program({name: arrays.pop(name) for name in self.deciding if name in arrays})
        results = device.run("main", {name: _plain(array) for name, array in arrays.items()})
        return tuple(_typed(results[name], dtype) for name, dtype in self._outputs)

    def _program(self, values: Arrays) -> Device:
        key = b"".join(name.encode() + array.dtype.str.encode() + array.tobytes() for name, array in values.items())
        device = self._programs.get(key)
        if device is None:
            device = self._programs[key] = _compiled(self._model, self._options, values)
        return device


def _compiled(model: onnx.ModelProto, options: CompileOptions, values: Arrays) -> Device:
    compiled = compile_loaded(load_proto(model), replace(options, values=values))
    assert compiled is not None, "nothing stops the compilation"
    with tempfile.TemporaryDirectory(prefix="npuc-", ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "model.npu"
        write_blob(compiled.programs, compiled.states, compiled.metadata, compiled.assets, path)
        return Device(npurt.load(path))


def _plain(array: np.ndarray) -> np.ndarray:
    """Numbers in a type of NumPy's own: narrow types of ml_dtypes are exact in float32 or int8."""
    if array.dtype.isbuiltin == 1:
        return array
    return array.astype(np.int8 if array.dtype.name.startswith(("int", "uint")) else np.float32)


def _typed(array: np.ndarray, dtype: ir.DataType | None) -> np.ndarray:
    assert dtype is not None, "a compiled graph has typed outputs"
    return array.astype(dtype.numpy(), copy=False)


class NpucBackend(Backend):
    """The backend as a class. Keyword arguments of `prepare` and `run_model`: fields of npuc.driver.CompileOptions."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> NpucRep:
        """Compiles a model, at once where its inputs decide no shapes. Raises ModelRefused and its like."""
        return NpucRep(model, CompileOptions(**{"precision": "f32", "llm": False, **kwargs}))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compiles and runs a model once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] in DEVICES


prepare = NpucBackend.prepare
run_model = NpucBackend.run_model
supports_device = NpucBackend.supports_device
is_compatible = NpucBackend.is_compatible
run_node = NpucBackend.run_node
