"""Types and shapes of all values of a graph, node by node, so that every node that does not fit is named.

onnx's own whole-graph inference stops at the first fault, or hides all of them; its per-node entry point does neither.
"""

from __future__ import annotations

import math
import re

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.known import schema_of
from npuc.frontend.order import ordered, subgraphs
from npuc.frontend.schema import check_node
from npuc.frontend.text import Dim, node_text, shape_text
from npuc.frontend.weights import MAX_TENSOR_BYTES

_DATA_ELEMENTS = 1024  # constants up to this size can be shapes, axes or scales, which inference looks into
_INT_TYPES = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT})


class Types:
    """What inference found out, by value name (names are unique in a model and its subgraphs)."""

    def __init__(self) -> None:
        self.protos: dict[str, onnx.TypeProto] = {}
        self.data: dict[str, onnx.TensorProto] = {}

    def dtype(self, value: ir.Value) -> int | None:
        """TensorProto element type, or None where not known."""
        proto = self.protos.get(value.name or "")
        return (proto.tensor_type.elem_type or None) if proto is not None and proto.HasField("tensor_type") else None

    def dims(self, value: ir.Value) -> tuple[Dim, ...] | None:
        """Extents, each a number, a name or None; None where not even the rank is known."""
        proto = self.protos.get(value.name or "")
        if proto is None or not proto.tensor_type.HasField("shape"):
            return None
        return tuple(_dim(d) for d in proto.tensor_type.shape.dim)


def declared_dims(shape: ir.ShapeProtocol) -> list[Dim]:
    """The extents of an onnx-ir shape."""
    return [d if isinstance(d, int) else d.value for d in shape]


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def infer(model: ir.Model, problems: Problems) -> Types:
    """Infers what can be known before dimensions have values. Adds a problem for each node that does not fit."""
    types = Types()
    walk = _Walk(model, types, problems)
    walk.graph(model.graph)
    return types


class _Walk:
    """One pass over a model in running order."""

    def __init__(self, model: ir.Model, types: Types, problems: Problems) -> None:
        self.opsets = model.opset_imports
        self.imports = [onnx.helper.make_opsetid(d, v) for d, v in model.opset_imports.items()]
        self.ir_version = model.ir_version or onnx.IR_VERSION
        self.types = types
        self.problems = problems
        self.schemas: dict[tuple[str, str], onnx.defs.OpSchema | None] = {}

    def graph(self, graph: ir.Graph) -> None:
        for value in (*graph.inputs, *graph.initializers.values()):
            self.declare(value)
        for node in ordered(graph)[0]:
            self.node(node)
        for value in graph.outputs:
            if value is not None:
                self.output(value)

    def declare(self, value: ir.Value) -> None:
        """Takes over what the file says of a value."""
        tensor = value.const_value
        dtype, shape = (tensor.dtype, tensor.shape) if tensor is not None else (value.dtype, value.shape)
        if value.name is None or dtype is None:
            return
        dims = None if shape is None else declared_dims(shape)
        self.types.protos[value.name] = onnx.helper.make_tensor_type_proto(int(dtype), dims)
        if tensor is not None and not isinstance(tensor, ir.ExternalTensor) and _is_small(tensor):
            self.types.data[value.name] = ir.serde.serialize_tensor(tensor)

    def node(self, node: ir.Node) -> None:
        for attribute in node.attributes.values():
            for inner in subgraphs(attribute):
                self.graph(inner)
        if node.domain == "npuc" and node.op_type in ("ReadValue", "Assign"):
            self.state(node)
            return
        key = (node.domain, node.op_type)
        if key not in self.schemas:
            self.schemas[key] = schema_of(node, self.opsets)
        schema = self.schemas[key]
        if schema is None:
            for value in node.outputs:
                self.declare(value)
        elif check_node(node, schema, self.types.dtype, self.problems):
            self.infer(node, schema)

    def state(self, node: ir.Node) -> None:
        """A ReadValue has the type that it declares, an Assign that of the value. Their rules are the state room's."""
        if not node.outputs:
            return
        name = node.outputs[0].name or ""
        if node.op_type == "Assign":
            source = node.inputs[0] if node.inputs else None
            if source is not None and source.name in self.types.protos:
                self.types.protos[name] = self.types.protos[source.name]
            return
        dtype, shape = node.attributes.get("dtype"), node.attributes.get("shape")
        if dtype is None or shape is None or dtype.type != ir.AttributeType.INT or shape.type != ir.AttributeType.INTS:
            return
        if dtype.as_int() not in onnx.TensorProto.DataType.values():
            return
        dims: list[Dim] = [d if d >= 0 else None for d in shape.as_ints()]
        self.types.protos[name] = onnx.helper.make_tensor_type_proto(dtype.as_int(), dims)

    def infer(self, node: ir.Node, schema: onnx.defs.OpSchema) -> None:
        protos, data = self.types.protos, self.types.data
        names = [v.name or "" for v in node.inputs if v is not None]
        known = {n: protos[n] for n in names if n in protos}
        if len(known) < len(set(names)) or any(node.attributes[a].type in _GRAPHS for a in node.attributes):
            self.partly(node)
            return
        try:
            made = onnx.shape_inference.infer_node_outputs(
                schema,
                ir.serde.serialize_node(node),
                known,
                {n: data[n] for n in names if n in data},
                None,
                self.imports,
                self.ir_version,
            )
        except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
            shapes = ", ".join(f"{v.name!r} {shape_text(self.types.dims(v))}" for v in node.inputs if v is not None)
            self.problems.add(f"{shapes} do not fit: {_reason(error)}", node_text(node))
            return
        for value in node.outputs:
            if value.name and value.name in made:
                protos[value.name] = made[value.name]
                self.cap(node, value)
        if node.op_type == "Constant" and "value" in node.attributes and node.domain == "":
            tensor = node.attributes["value"].as_tensor()
            if _is_small(tensor):
                data[node.outputs[0].name or ""] = ir.serde.serialize_tensor(tensor)

    def partly(self, node: ir.Node) -> None:
        """Outputs of a node that inference cannot see through: what the file declares for them."""
        for value in node.outputs:
            self.declare(value)

    def cap(self, node: ir.Node, value: ir.Value) -> None:
        dims, dtype = self.types.dims(value), self.types.dtype(value)
        if dims is None or dtype is None:
            return
        bits = ir.DataType(dtype).bitwidth if dtype != onnx.TensorProto.STRING else 8
        size = math.prod(d for d in dims if isinstance(d, int)) * bits // 8
        if size > MAX_TENSOR_BYTES:
            self.problems.add(
                f"makes {value.name!r} of shape {shape_text(dims)}, larger than any value can be", node_text(node)
            )

    def output(self, value: ir.Value) -> None:
        """A graph output's declared type and shape against what its node makes."""
        found, declared = self.types.dims(value), value.shape
        if found is None or declared is None or value.producer() is None:
            return
        said = declared_dims(declared)
        clash = len(found) != len(said) or any(
            isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(found, said, strict=False)
        )
        if clash:
            self.problems.add(
                f"output {value.name!r} is declared {shape_text(said)}, the node makes {shape_text(found)}",
                node_text(_maker(value)),
            )


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _maker(value: ir.Value) -> ir.Node:
    node = value.producer()
    assert node is not None
    return node


def _is_small(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype in _INT_TYPES and math.prod(tensor.shape.numpy()) <= _DATA_ELEMENTS


def _reason(error: Exception) -> str:
    """The library's own words without its frame of error classes and node names."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"^(\[\w+\]\s*)?(\(op_type:[^)]*\):?\s*)?(\[\w+\]\s*)?", "", line).strip().rstrip(".")
