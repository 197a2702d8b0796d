"""onnxruntime, the reference: one session of one graph, without graph optimisations, without copies of the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import onnx_ir as ir

from npuc.compare.errors import OracleMissing, OracleRefused
from npuc.graph.functions import add_functions

# Larger constants are fed from where they lie; smaller ones stay, since shapes and axes must be constants.
FED_BYTES = 4096
_FED_TYPES = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8}
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
_FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
NUMPY_TYPES: Mapping[str, Any] = {
    **_INTEGERS, **_FLOATS, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8, "tensor(int16)": np.int16,
    "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
}  # fmt: skip


def onnxruntime() -> ModuleType:
    """The package. Raises OracleMissing, which names the extra that brings it."""
    try:
        import onnxruntime as package
    except ImportError as error:
        raise OracleMissing("npuc check needs the package onnxruntime: pip install 'npuc[check]'") from error
    return package  # type: ignore[no-any-return]


class Oracle:
    """A graph that onnxruntime runs as it is.

    model: stays as it is. what: how messages name it. extra: names of values that become outputs, too. Raises
    OracleRefused where onnxruntime does not take the graph.
    """

    def __init__(self, model: ir.Model, what: str, extra: Sequence[str] = ()) -> None:
        ort = onnxruntime()
        copy = model.clone()
        add_functions(copy)
        self._what = what
        self._weights = _take_weights(copy.graph)
        _expose(copy.graph, extra)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave the host alone
        try:
            data = ir.to_proto(copy).SerializeToString()
            self._session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the package has no common base class for what it raises
            raise OracleRefused(f"onnxruntime does not take {what}: {_first_line(error)}") from error
        self.inputs: dict[str, np.dtype[Any]] = {}
        for port in self._session.get_inputs():
            if port.name not in self._weights:
                if port.type not in NUMPY_TYPES:
                    raise OracleRefused(f"{what}: NumPy has no type for input {port.name!r}, {port.type}")
                self.inputs[port.name] = np.dtype(NUMPY_TYPES[port.type])
        self.outputs = tuple(port.name for port in self._session.get_outputs())

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs by name. feeds: every input, converted to its type; others are left out."""
        given = {name: np.ascontiguousarray(feeds[name], dtype) for name, dtype in self.inputs.items()}
        try:
            found = self._session.run(list(self.outputs), {**self._weights, **given})
        except Exception as error:
            raise OracleRefused(f"onnxruntime cannot run {self._what}: {_first_line(error)}") from error
        return dict(zip(self.outputs, found, strict=True))


def _take_weights(graph: ir.Graph) -> dict[str, np.ndarray]:
    """Makes large constants inputs, in place, and gives them by name: mapped files stay mapped."""
    taken = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None:
            continue
        if tensor.dtype not in _FED_TYPES or tensor.nbytes <= FED_BYTES:
            if isinstance(tensor, ir.ExternalTensor):  # a session made from bytes has no folder to look into
                value.const_value = ir.Tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
            continue
        taken[name] = tensor.numpy()
        del graph.initializers[name]
        value.const_value = None
        value.shape, value.dtype = ir.Shape(taken[name].shape), tensor.dtype
        if value not in graph.inputs:
            graph.inputs.append(value)
    return taken


def _expose(graph: ir.Graph, names: Sequence[str]) -> None:
    made = {output.name: output for node in graph for output in node.outputs}
    held = {value.name for value in graph.outputs}
    graph.outputs.extend(made[name] for name in names if name not in held)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
