"""Facts about values: type, shape and, where it is known, the content. One operator at a time, remembered by signature.

Equal layers ask equal questions, so the answers are kept by (operator, attributes, input types, known shape operands).
The standard's own inference answers for ONNX operators; npuc's and onnxruntime's have a function each below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.shape_inference
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.nodes import DOMAIN, attributes, label

OPSET = 21
"""The operator set whose semantics the graph level has."""

SMALL = 64
"""Contents of at most this many elements may matter for a shape."""

_CORRECTED = frozenset({"AveragePool", "LpPool", "MaxPool"})
"""Operators whose shapes under ceil_mode set 22 corrects: no window begins in the padding at the end."""

Dims = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of a value. shape: None if not even the rank is known, a None inside for an unknown extent.
    tensor: the content, if known (its array may be loaded or computed on first use)."""

    dtype: ir.DataType
    shape: Dims | None
    tensor: ir.TensorProtocol | None = None

    @property
    def static(self) -> bool:
        return self.shape is not None and None not in self.shape

    @property
    def size(self) -> int:
        """Elements of a static value."""
        assert self.shape is not None
        return math.prod(d for d in self.shape if d is not None)


def known_fact(array: np.ndarray) -> Fact:
    """The fact of a value with this content."""
    tensor = ir.Tensor(array)
    return Fact(tensor.dtype, array.shape, tensor)


@dataclass
class Inference:
    """Shape inference with a memory; one object serves a whole build."""

    _answers: dict[Any, list[Fact]] = field(default_factory=dict)
    _signatures: dict[ir.Node, int] = field(default_factory=dict)
    _numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)
    _functions: dict[tuple[str, str], ir.Function] = field(default_factory=dict)

    def keep(self, functions: Iterable[ir.Function]) -> None:
        """Functions of the model that stay calls: their bodies say what they make."""
        self._functions.update({(f.domain, f.name): f for f in functions if f.domain != DOMAIN})

    def signature(self, node: ir.Node) -> int:
        """Equal for nodes of the same operator with the same attributes, which no longer change."""
        found = self._signatures.get(node)
        if found is None:
            key = (_said(node), tuple(bool(output.name) for output in node.outputs))
            found = self._signatures[node] = self._numbers.setdefault(key, len(self._numbers))
        return found

    def infer(self, node: ir.Node, inputs: Sequence[Fact | None]) -> list[Fact]:
        """Facts of the node's outputs. Raises ModelRefused with the node and the shapes if they do not fit."""
        key = (self.signature(node), *(_asked(node, fact) for fact in inputs))
        answer = self._answers.get(key)
        if answer is None:
            own = _OWN.get((node.domain, node.op_type))
            if own is not None:
                answer = own(attributes(node), [f for f in inputs if f is not None])
            elif (node.domain, node.op_type) in self._functions:
                answer = _of_body(node, inputs, self._functions[node.domain, node.op_type])
            else:
                answer = _standard(node, inputs)
            self._answers[key] = answer
        return answer


def _said(node: ir.Node) -> tuple[Any, ...]:
    """Operator and attributes of a node."""
    parts: list[Any] = [node.domain, node.op_type, len(node.outputs)]
    for name, attribute in node.attributes.items():
        value = attribute.value
        if attribute.type == ir.AttributeType.TENSOR:
            value = value.tobytes() if value.dtype != ir.DataType.STRING else value.numpy().tolist()
        parts.append((name, value if isinstance(value, bytes) else str(value)))
    return tuple(parts)


def _asked(node: ir.Node, fact: Fact | None) -> Hashable:
    """What inference looks at of an input."""
    if fact is None:
        return None
    if fact.tensor is not None and _numbers_count(node, fact):
        return fact.dtype, fact.shape, fact.tensor.numpy().tobytes()
    return fact.dtype, fact.shape


def _numbers_count(node: ir.Node, fact: Fact) -> bool:
    """Whether a constant's numbers may decide a shape: whole ones of shapes and axes, and the scales of Resize."""
    shapes = fact.dtype == ir.DataType.INT64 or (fact.dtype == ir.DataType.FLOAT and node.op_type == "Resize")
    return shapes and fact.size <= SMALL


def _type_proto(fact: Fact) -> onnx.TypeProto:
    if fact.shape is None:
        return onnx.helper.make_tensor_type_proto(fact.dtype.value, None)
    return onnx.helper.make_tensor_type_proto(fact.dtype.value, [None if d is None else int(d) for d in fact.shape])


def _standard(node: ir.Node, inputs: Sequence[Fact | None]) -> list[Fact]:
    proto = onnx.helper.make_node(
        node.op_type,
        [f"i{i}" if fact is not None else "" for i, fact in enumerate(inputs)],
        [f"o{i}" if output.name else "" for i, output in enumerate(node.outputs)],
        domain=node.domain,
    )
    proto.attribute.extend(ir.to_proto(attribute) for attribute in node.attributes.values())
    types = {f"i{i}": _type_proto(fact) for i, fact in enumerate(inputs) if fact is not None}
    data = {
        f"i{i}": onnx.numpy_helper.from_array(np.ascontiguousarray(fact.tensor.numpy()))
        for i, fact in enumerate(inputs)
        if fact is not None and fact.tensor is not None and _numbers_count(node, fact)
    }
    answer, fault = None, None
    versions = [OPSET, max(OPSET, onnx.defs.onnx_opset_version())]  # newer sets have newer element types
    for version in reversed(versions) if node.op_type in _CORRECTED else versions:
        try:
            schema = onnx.defs.get_schema(node.op_type, version, node.domain)
            answer = onnx.shape_inference.infer_node_outputs(
                schema, proto, types, data, opset_imports=[onnx.helper.make_opsetid(node.domain, version)]
            )
            break
        except onnx.defs.SchemaError as error:
            raise ModelRefused([f"{label(node)}: npuc has no rule for this operator"]) from error
        except Exception as error:  # the library raises several unrelated types
            fault = fault or error
    if answer is None:
        assert fault is not None
        shapes = ", ".join("-" if f is None else f"{f.dtype.name} {_show(f.shape)}" for f in inputs)
        raise ModelRefused([f"{label(node)} of {shapes}: {_first_line(fault)}"]) from fault
    return [
        _fact(answer[f"o{i}"]) if output.name else Fact(ir.DataType.UNDEFINED, None)
        for i, output in enumerate(node.outputs)
    ]


def _of_body(node: ir.Node, inputs: Sequence[Fact | None], function: ir.Function) -> list[Fact]:
    """What the body of a function makes of these inputs, as the standard's inference follows it."""
    names = [f"i{i}" if fact is not None else "" for i, fact in enumerate(inputs)]
    outputs = [f"o{i}" for i in range(len(node.outputs))]
    call = onnx.helper.make_node(node.op_type, names, outputs, domain=node.domain)
    call.attribute.extend(ir.to_proto(attribute) for attribute in node.attributes.values())
    given = [
        onnx.helper.make_value_info(name, _type_proto(fact))
        for name, fact in zip(names, inputs, strict=True)
        if fact is not None
    ]
    graph = onnx.helper.make_graph([call], "call", given, [onnx.ValueInfoProto(name=name) for name in outputs])
    opsets = [onnx.helper.make_opsetid(node.domain, 1)]
    opsets += [onnx.helper.make_opsetid(d, v) for d, v in function.opset_imports.items() if d != node.domain]
    model = onnx.helper.make_model(graph, opset_imports=opsets, functions=[ir.to_proto(function)])
    try:
        found = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:  # the library raises several unrelated types
        shapes = ", ".join("-" if f is None else f"{f.dtype.name} {_show(f.shape)}" for f in inputs)
        raise ModelRefused([f"{label(node)} of {shapes}: {_first_line(error)}"]) from error
    return [_fact(value.type) for value in found.graph.output]


def _fact(proto: onnx.TypeProto) -> Fact:
    tensor = proto.tensor_type
    shape: Dims | None = None
    if tensor.HasField("shape"):
        shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim)
    return Fact(ir.DataType(tensor.elem_type), shape)


def _show(shape: Dims | None) -> str:
    return "[...]" if shape is None else "[" + ", ".join("?" if d is None else str(d) for d in shape) + "]"


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _like_first(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    return [Fact(inputs[0].dtype, inputs[0].shape)]


def _step_rows(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    assert inputs[0].shape is not None
    return [Fact(inputs[0].dtype, (attrs["rows"], *inputs[0].shape[1:]))]


def _last_rows(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    assert inputs[0].shape is not None
    shape = [attrs["count"] if axis == attrs["axis"] else n for axis, n in enumerate(inputs[0].shape)]
    return [Fact(inputs[0].dtype, tuple(shape))]


def _step_mask(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    columns = attrs["capacity"] + (0 if attrs.get("whole", 0) else attrs["rows"])
    return [Fact(ir.DataType.BOOL, (1, 1, attrs["rows"], columns))]


def _step_bias(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    columns = attrs["capacity"] + (0 if attrs.get("whole", 0) else attrs["rows"])
    return [Fact(ir.DataType.FLOAT, (1, len(attrs["slopes"]), attrs["rows"], columns))]


def _dequantized(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    assert inputs[0].shape is not None
    return [Fact(ir.DataType(attrs["to"]), (inputs[0].shape[0], attrs["k"]))]


def _dequantized_turned(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    (rows,) = _dequantized(attrs, inputs)
    assert rows.shape is not None
    return [Fact(rows.dtype, rows.shape[::-1])]


def _attention(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    query, value = inputs[0].shape, inputs[2].shape
    assert query is not None and value is not None
    return [Fact(inputs[0].dtype, (*query[:-1], value[-1]))]


def _mixture(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    x, down = inputs[0].shape, inputs[5].shape
    assert x is not None and down is not None
    return [Fact(inputs[0].dtype, (*x[:-1], down[1]))]


def _integer_linear(attrs: dict[str, Any], inputs: list[Fact]) -> list[Fact]:
    codes, weight = inputs[0].shape, inputs[3].shape
    return [Fact(ir.DataType.FLOAT, None if codes is None or weight is None else (*codes[:-1], weight[-1]))]


_OWN: dict[tuple[str, str], Callable[[dict[str, Any], list[Fact]], list[Fact]]] = {
    (DOMAIN, "RMSNorm"): _like_first,
    (DOMAIN, "Rotary"): _like_first,
    (DOMAIN, "StepRows"): _step_rows,
    (DOMAIN, "LastRows"): _last_rows,
    (DOMAIN, "StepMask"): _step_mask,
    (DOMAIN, "Attention"): _attention,
    (DOMAIN, "WriteRows"): _like_first,
    (DOMAIN, "PastRows"): _like_first,
    (DOMAIN, "ValidRows"): _like_first,
    (DOMAIN, "IntegerLinear"): _integer_linear,
    (DOMAIN, "StepBias"): _step_bias,
    (DOMAIN, "DequantizedRows"): _dequantized,
    (DOMAIN, "DequantizedWeight"): _dequantized_turned,
    (DOMAIN, "MoE"): _mixture,
}
