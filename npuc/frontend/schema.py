"""A node against the schema of its operator: count and types of inputs, names and types of attributes."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.defs
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.text import dtype_text, node_text

_Option = onnx.defs.OpSchema.FormalParameterOption
_IR_ONLY_ATTRIBUTES = frozenset({"_outputs"})  # nothing an operator means depends on it; some converters leave it behind


def check_node(node: ir.Node, schema: onnx.defs.OpSchema, dtype_of: Callable[[ir.Value], int | None], problems: Problems) -> bool:
    """Whether the node fits; adds a problem for each fault. dtype_of gives a value's TensorProto type where known."""
    before = len(problems.messages()) if problems else 0
    _check_counts(node, schema, problems)
    _check_attributes(node, schema, problems)
    _check_types(node, schema, dtype_of, problems)
    return (len(problems.messages()) if problems else 0) == before


def _check_counts(node: ir.Node, schema: onnx.defs.OpSchema, problems: Problems) -> None:
    given = len(node.inputs)
    if not schema.min_input <= given <= schema.max_input:
        problems.add(f"has {given} inputs, the operator takes {_range(schema.min_input, schema.max_input)}", node_text(node))
    if not schema.min_output <= len(node.outputs) <= schema.max_output:
        problems.add(f"has {len(node.outputs)} outputs, the operator makes {_range(schema.min_output, schema.max_output)}",
                     node_text(node))
    for value, formal in zip(node.inputs, schema.inputs, strict=False):
        if value is None and formal.option == _Option.Single:
            problems.add(f"leaves out its input {formal.name}, which the operator needs", node_text(node))


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}" if high < 1 << 20 else f"at least {low}"


def _check_attributes(node: ir.Node, schema: onnx.defs.OpSchema, problems: Problems) -> None:
    formal = schema.attributes
    for name, attribute in node.attributes.items():
        if name not in formal:
            problems.add(f"has an attribute {name!r} that the operator does not have in this operator set", node_text(node))
        elif int(attribute.type) != int(formal[name].type.value):
            problems.add(f"attribute {name!r} is {attribute.type.name.lower()}, not {formal[name].type.name.lower()}",
                         node_text(node))
    for name, wanted in formal.items():
        if wanted.required and name not in node.attributes:
            problems.add(f"misses its attribute {name!r}", node_text(node))


def _check_types(node: ir.Node, schema: onnx.defs.OpSchema, dtype_of: Callable[[ir.Value], int | None],
                 problems: Problems) -> None:
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
            problems.add(f"{_value_text(value)} is {dtype_text(code)}, input {formal.name} takes {types}", node_text(node))
            continue
        if formal.type_str.startswith("tensor(") or not formal.is_homogeneous:
            continue
        if formal.type_str not in first:
            first[formal.type_str] = (value, code)
        elif first[formal.type_str][1] != code:
            other, other_code = first[formal.type_str]
            problems.add(f"{_value_text(other)} is {dtype_text(other_code)} and {_value_text(value)} is {dtype_text(code)}; "
                         "they must have one type", node_text(node))


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
