"""A node against the schema of its operator: count and types of inputs, names and types of attributes."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.defs
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.text import count_text, dtype_text, node_text

_Option = onnx.defs.OpSchema.FormalParameterOption
_AttrType = onnx.defs.OpSchema.AttrType
_ATTRIBUTE_TYPES = {
    _AttrType.FLOAT: ir.AttributeType.FLOAT,
    _AttrType.INT: ir.AttributeType.INT,
    _AttrType.STRING: ir.AttributeType.STRING,
    _AttrType.TENSOR: ir.AttributeType.TENSOR,
    _AttrType.GRAPH: ir.AttributeType.GRAPH,
    _AttrType.SPARSE_TENSOR: ir.AttributeType.SPARSE_TENSOR,
    _AttrType.TYPE_PROTO: ir.AttributeType.TYPE_PROTO,
    _AttrType.FLOATS: ir.AttributeType.FLOATS,
    _AttrType.INTS: ir.AttributeType.INTS,
    _AttrType.STRINGS: ir.AttributeType.STRINGS,
    _AttrType.TENSORS: ir.AttributeType.TENSORS,
    _AttrType.GRAPHS: ir.AttributeType.GRAPHS,
    _AttrType.SPARSE_TENSORS: ir.AttributeType.SPARSE_TENSORS,
    _AttrType.TYPE_PROTOS: ir.AttributeType.TYPE_PROTOS,
}


DtypeOf = Callable[[ir.Value], int | None]


def check_node(node: ir.Node, schema: onnx.defs.OpSchema, dtype_of: DtypeOf, problems: Problems) -> bool:
    """Whether the node fits; adds a problem for each fault. dtype_of gives a value's TensorProto type where known."""
    before = problems.count
    _check_counts(node, schema, problems)
    _check_attributes(node, schema, problems)
    _check_types(node, schema, dtype_of, problems)
    return problems.count == before


def _check_counts(node: ir.Node, schema: onnx.defs.OpSchema, problems: Problems) -> None:
    inputs, outputs = len(node.inputs), len(node.outputs)
    if not schema.min_input <= inputs <= schema.max_input:
        allowed = _range(schema.min_input, schema.max_input)
        problems.add(f"has {count_text(inputs, 'input')}, the operator takes {allowed}", node_text(node))
    if not schema.min_output <= outputs <= schema.max_output:
        allowed = _range(schema.min_output, schema.max_output)
        problems.add(f"has {count_text(outputs, 'output')}, the operator makes {allowed}", node_text(node))
    for value, formal in zip(node.inputs, schema.inputs, strict=False):
        if value is None and formal.option == _Option.Single:
            problems.add(f"leaves out its input {formal.name}, which the operator needs", node_text(node))


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}" if high < 1 << 20 else f"at least {low}"


def _check_attributes(node: ir.Node, schema: onnx.defs.OpSchema, problems: Problems) -> None:
    formal = schema.attributes
    for name, attribute in node.attributes.items():
        if name not in formal:
            problems.add(f"attribute {name!r} does not exist for it in this operator set", node_text(node))
        elif attribute.type != (wanted_type := _ATTRIBUTE_TYPES[formal[name].type]):
            said, wanted = attribute.type.name.lower(), wanted_type.name.lower()
            problems.add(f"attribute {name!r} is {said}, not {wanted}", node_text(node))
    for name, parameter in formal.items():
        if parameter.required and name not in node.attributes:
            problems.add(f"misses its attribute {name!r}", node_text(node))


def _check_types(node: ir.Node, schema: onnx.defs.OpSchema, dtype_of: DtypeOf, problems: Problems) -> None:
    """Each input within the types of its parameter, and all inputs of one type variable alike."""
    formals = list(schema.inputs)
    first: dict[str, tuple[ir.Value, int]] = {}
    for i, value in enumerate(node.inputs):
        if value is None or not formals:
            continue
        formal = formals[min(i, len(formals) - 1)]
        if i >= len(formals) and formal.option != _Option.Variadic:
            return  # too many: said already
        code = dtype_of(value)
        if code is None:
            continue
        allowed = _allowed(formal.types)
        if allowed and code not in allowed:
            types = ", ".join(dtype_text(c) for c in sorted(allowed))
            problems.add(
                f"{_value_text(value)} is {dtype_text(code)}; the operator takes {types} there", node_text(node)
            )
            continue
        if formal.type_str.startswith("tensor(") or not formal.is_homogeneous:
            continue
        if formal.type_str not in first:
            first[formal.type_str] = (value, code)
        elif first[formal.type_str][1] != code:
            other, other_code = first[formal.type_str]
            problems.add(
                f"{_value_text(other)} is {dtype_text(other_code)} and {_value_text(value)} is {dtype_text(code)}; "
                "they must have one type",
                node_text(node),
            )


def _value_text(value: ir.Value) -> str:
    return f"{'weight' if value.is_initializer() else 'input'} {value.name!r}"


def _allowed(types: set[str]) -> frozenset[int]:
    """TensorProto codes of a parameter's type texts; empty if it also takes sequences and the like."""
    codes = set()
    for text in types:
        if not text.startswith("tensor("):
            return frozenset()
        codes.add(_CODES[text[7:-1]])
    return frozenset(codes)


_CODES = {name.lower(): code for name, code in onnx.TensorProto.DataType.items()}
