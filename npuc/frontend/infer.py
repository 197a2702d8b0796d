"""Types and shapes of all values of a graph, node by node, so that every node that does not fit is named.

onnx's own whole-graph inference stops at the first fault, or hides all of them; its per-node entry point does
neither. Equal layers ask equal questions, so the answer for an operator and what is known of its inputs is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.facts import Types, declared_dims
from npuc.frontend.known import schema_of
from npuc.frontend.order import ordered, subgraphs
from npuc.frontend.schema import check_node
from npuc.frontend.text import Dim, node_text, shape_text
from npuc.frontend.weights import MAX_TENSOR_BYTES

_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
_PLAIN = (
    ir.AttributeType.INT,
    ir.AttributeType.INTS,
    ir.AttributeType.FLOAT,
    ir.AttributeType.FLOATS,
    ir.AttributeType.STRING,
    ir.AttributeType.STRINGS,
)
# What the library raises for a node that does not fit, whichever of its layers notices first.
_FAULTS = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError)
Question = tuple[Hashable, ...]


def infer(model: ir.Model, problems: Problems) -> Types:
    """Infers what can be known before dimensions have values. Adds a problem for each node that does not fit."""
    walk = _Walk(model, problems)
    walk.graph(model.graph)
    return walk.types


class _Walk:
    """One pass over a model in running order."""

    def __init__(self, model: ir.Model, problems: Problems) -> None:
        self.opsets = model.opset_imports
        self.imports = [onnx.helper.make_opsetid(d, v) for d, v in model.opset_imports.items()]
        self.ir_version = model.ir_version or onnx.IR_VERSION
        self.types = Types()
        self.problems = problems
        self.schemas: dict[tuple[str, str], onnx.defs.OpSchema | None] = {}
        self.answers: dict[Question, list[onnx.TypeProto | None]] = {}

    def graph(self, graph: ir.Graph) -> None:
        for value in (*graph.inputs, *graph.initializers.values()):
            self.types.declare(value)
        for node in ordered(graph)[0]:
            self.node(node)
        for value in graph.outputs:
            if value is not None:
                self.output(value)

    def node(self, node: ir.Node) -> None:
        for attribute in node.attributes.values():
            for inner in subgraphs(attribute):
                self.graph(inner)
        if node.domain == "npuc" and node.op_type in ("ReadValue", "Assign"):
            self.state(node)
            return
        question = self.question(node)
        if question is not None and question in self.answers:
            self.answer(node, self.answers[question])
            return
        key = (node.domain, node.op_type)
        if key not in self.schemas:
            self.schemas[key] = schema_of(node, self.opsets)
        schema = self.schemas[key]
        if schema is None:
            self.partly(node)
        elif check_node(node, schema, self.types.dtype, self.problems):
            made = self.infer(node, schema)
            if made is not None and question is not None:
                self.answers[question] = made

    def question(self, node: ir.Node) -> Question | None:
        """Equal for nodes of which inference says the same; None where attributes hold tensors or graphs."""
        attributes: list[Hashable] = []
        for name, attribute in node.attributes.items():
            if attribute.type not in _PLAIN:
                return None
            value = attribute.value
            attributes.append((name, attribute.type, tuple(value) if isinstance(value, list | tuple) else value))
        inputs = tuple(self.types.signature(v) for v in node.inputs)
        return (node.domain, node.op_type, len(node.outputs), tuple(attributes), inputs)

    def state(self, node: ir.Node) -> None:
        """A ReadValue has the type that it declares, an Assign that of the value. Their rules are the state room's."""
        if not node.outputs:
            return
        name = node.outputs[0].name or ""
        if node.op_type == "Assign":
            source = node.inputs[0] if node.inputs else None
            if source is not None and source.name in self.types.protos:
                self.types.set_proto(name, self.types.protos[source.name])
            return
        dtype, shape = node.attributes.get("dtype"), node.attributes.get("shape")
        if dtype is None or shape is None or dtype.type != ir.AttributeType.INT or shape.type != ir.AttributeType.INTS:
            return
        if dtype.as_int() in onnx.TensorProto.DataType.values():
            dims: list[Dim] = [d if d >= 0 else None for d in shape.as_ints()]
            self.types.set_kind(name, dtype.as_int(), dims)

    def infer(self, node: ir.Node, schema: onnx.defs.OpSchema) -> list[onnx.TypeProto | None] | None:
        """Types of the outputs, None inside for an unknown one; None if the node does not fit or cannot be told."""
        protos, data = self.types.protos, self.types.data
        names = [v.name or "" for v in node.inputs if v is not None]
        known = {n: protos[n] for n in names if n in protos}
        if len(known) < len(set(names)) or any(a.type in _GRAPHS for a in node.attributes.values()):
            self.partly(node)
            return None
        contents = {n: data[n] for n in names if n in data}
        proto = ir.serde.serialize_node(node)
        try:
            found = onnx.shape_inference.infer_node_outputs(
                schema, proto, known, contents, None, self.imports, self.ir_version
            )
        except _FAULTS as error:
            shapes = ", ".join(f"{v.name!r} {shape_text(self.types.dims(v))}" for v in node.inputs if v is not None)
            self.problems.add(f"{shapes} do not fit: {_reason(error)}", node_text(node))
            return None
        made = [found.get(v.name) if v.name else None for v in node.outputs]
        rank = self.rank_by_length(node)
        if rank is not None and made[0] is not None and not made[0].tensor_type.HasField("shape"):
            made[0] = onnx.helper.make_tensor_type_proto(made[0].tensor_type.elem_type, [None] * rank)
        self.answer(node, made)
        if node.op_type == "Constant" and node.domain == "" and "value" in node.attributes:
            self.types.set_content(node.outputs[0].name or "", node.attributes["value"].as_tensor())
        return made

    def rank_by_length(self, node: ir.Node) -> int | None:
        """The rank that the length of a shape operand gives the output, where its content is not known."""
        index = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}.get(node.op_type) if node.domain == "" else None
        operands = [self.types.dims(v) if v is not None else None for v in node.inputs]
        if index is None or index >= len(operands) or operands[index] is None:
            return None
        source, shape = operands[0], operands[index]
        length = shape[0] if shape is not None and len(shape) == 1 else None
        if not isinstance(length, int) or source is None:
            return None
        return max(length, len(source)) if node.op_type == "Expand" else length

    def answer(self, node: ir.Node, made: list[onnx.TypeProto | None]) -> None:
        for value, proto in zip(node.outputs, made, strict=True):
            if value.name and proto is not None:
                self.types.set_proto(value.name, proto)
                self.cap(node, value)

    def partly(self, node: ir.Node) -> None:
        """Outputs of a node that inference cannot see through: what the file declares for them."""
        for value in node.outputs:
            self.types.declare(value)

    def cap(self, node: ir.Node, value: ir.Value) -> None:
        dims, dtype = self.types.dims(value), self.types.dtype(value)
        if dims is None or dtype is None:
            return
        bits = ir.DataType(dtype).bitwidth if dtype != onnx.TensorProto.STRING else 8
        if math.prod(d for d in dims if isinstance(d, int)) * bits // 8 > MAX_TENSOR_BYTES:
            shape = shape_text(dims)
            self.problems.add(f"makes {value.name!r} of shape {shape}, larger than any value can be", node_text(node))

    def output(self, value: ir.Value) -> None:
        """A graph output's declared shape against what its node makes."""
        found, declared, maker = self.types.dims(value), value.shape, value.producer()
        if found is None or declared is None or maker is None:
            return
        said = declared_dims(declared)
        pairs = zip(found, said, strict=False)
        if len(found) != len(said) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
            sizes = f"declared {shape_text(said)}, the node makes {shape_text(found)}"
            self.problems.add(f"output {value.name!r} is {sizes}", node_text(maker))


def _reason(error: Exception) -> str:
    """The library's own words without its frame of error classes and node names."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return re.sub(r"^(\[\w+\]\s*)?(\(op_type:[^)]*\):?\s*)?(\[\w+\]\s*)?", "", line).strip().rstrip(".")
