"""The rules of `npuc.ReadValue` and `npuc.Assign` (docs/stateful-format.md): what a node declares, and whether it
holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.facts import Types
from npuc.frontend.text import Dim, dtype_text, node_text, shape_text
from npuc.frontend.weights import MAX_TENSOR_BYTES
from npuc.graph.constants import constant_value

DOMAIN = "npuc"
VERSION = 1
READ, ASSIGN = "ReadValue", "Assign"
_ATTRIBUTES = {"variable_id": ir.AttributeType.STRING, "shape": ir.AttributeType.INTS, "dtype": ir.AttributeType.INT}
_TYPE_WORDS = {
    ir.AttributeType.STRING: "a string",
    ir.AttributeType.INTS: "a list of ints",
    ir.AttributeType.INT: "an int",
}
# Element types of the format that are no numbers of fixed size.
_NO_STATE = frozenset({onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING})


@dataclass
class Variable:
    """All nodes of one variable_id. shape: -1 where it grows; dtype: TensorProto element type."""

    id: str
    shape: tuple[int, ...]
    dtype: int
    reads: list[ir.Node] = field(default_factory=list)
    assign: ir.Node | None = None
    initial: np.ndarray | None = None

    @property
    def declared(self) -> str:
        return f"{dtype_text(self.dtype)} {shape_text(self.shape)}"

    @property
    def growing_axis(self) -> int | None:
        return self.shape.index(-1) if -1 in self.shape else None

    @property
    def nodes(self) -> list[ir.Node]:
        return [*self.reads, *([self.assign] if self.assign is not None else [])]


def is_state_node(node: ir.Node) -> bool:
    return node.domain == DOMAIN and node.op_type in (READ, ASSIGN)


def collect_variables(model: ir.Model, types: Types, problems: Problems) -> list[Variable]:
    """Every variable of a graph, in order of its first node. Adds a problem for each rule that is broken.

    The model's functions are inlined and its constant branches resolved (npuc.graph.branches), so a state node that is
    still inside a subgraph stays there.
    """
    variables: dict[str, Variable] = {}
    _check_version(model, problems)
    for node in model.graph.all_nodes():
        if not is_state_node(node):
            continue
        if node.graph is not model.graph:
            problems.add(
                "is inside a subgraph that does not fold away; state must be in the main graph", node_text(node)
            )
            continue
        if _well_formed(node, problems):
            _enter(node, variables, problems)
    for variable in variables.values():
        if variable.assign is not None:
            _check_fit(variable, variable.assign, types, problems)
        _take_initial(variable, model.opset_imports, problems)
    return list(variables.values())


def _check_version(model: ir.Model, problems: Problems) -> None:
    version = model.opset_imports.get(DOMAIN)
    if version not in (None, VERSION):
        problems.add(f"operator set {version} of domain {DOMAIN}; npuc reads version {VERSION}")


def _well_formed(node: ir.Node, problems: Problems) -> bool:
    """Whether count of inputs and outputs and all attributes are as the format says."""
    faults: list[str] = []
    given = [v for v in node.inputs if v is not None]
    if node.op_type == READ and (len(node.inputs) > 1 or len(node.outputs) != 1):
        faults.append("takes at most one input, the initial value, and makes one output")
    if node.op_type == ASSIGN and (len(given) != 1 or len(node.inputs) != 1 or len(node.outputs) > 1):
        faults.append("takes one input, the value, and makes at most one output")
    for name, kind in _ATTRIBUTES.items():
        if name not in node.attributes:
            faults.append(f"misses its attribute {name!r}")
        elif node.attributes[name].type != kind:
            faults.append(f"attribute {name!r} is {_kind(node.attributes[name])}, not {_TYPE_WORDS[kind]}")
    faults.extend(f"has an unknown attribute {name!r}" for name in node.attributes if name not in _ATTRIBUTES)
    if not faults:
        faults.extend(_value_faults(node.attributes))
    for fault in faults:
        problems.add(fault, node_text(node))
    return not faults


def _kind(attribute: ir.Attr) -> str:
    return _TYPE_WORDS.get(attribute.type, f"of type {attribute.type.name.lower()}")


def _value_faults(attributes: Mapping[str, ir.Attr]) -> list[str]:
    dtype, shape = attributes["dtype"].as_int(), attributes["shape"].as_ints()
    faults = []
    if not attributes["variable_id"].as_string():
        faults.append("attribute 'variable_id' is empty")
    if dtype not in onnx.TensorProto.DataType.values() or dtype in _NO_STATE:
        faults.append(f"attribute 'dtype' is {dtype}, which is no element type of a state")
    if any(d < -1 for d in shape):
        faults.append(f"attribute 'shape' is {list(shape)}; an extent is a number, or -1 where it grows")
    if list(shape).count(-1) > 1:
        faults.append(f"attribute 'shape' is {list(shape)}; a variable grows along one axis")
    if not faults and math.prod(abs(d) for d in shape) * ir.DataType(dtype).bitwidth // 8 > MAX_TENSOR_BYTES:
        faults.append(f"attribute 'shape' is {list(shape)}, larger than any state can be")
    return faults


def _enter(node: ir.Node, variables: dict[str, Variable], problems: Problems) -> None:
    key, shape = node.attributes["variable_id"].as_string(), tuple(node.attributes["shape"].as_ints())
    dtype = node.attributes["dtype"].as_int()
    variable = variables.setdefault(key, Variable(key, shape, dtype))
    if (variable.shape, variable.dtype) != (shape, dtype):
        first, here = node_text(variable.nodes[0]), f"{dtype_text(dtype)} {shape_text(shape)}"
        problems.add(f"variable {key!r} is {variable.declared} in {first} and {here} in {node_text(node)}")
    elif node.op_type == READ:
        variable.reads.append(node)
    elif variable.assign is None:
        variable.assign = node
    else:
        problems.add(f"variable {key!r} is assigned twice, in {node_text(variable.assign)} and {node_text(node)}")


def _check_fit(variable: Variable, assign: ir.Node, types: Types, problems: Problems) -> None:
    value = assign.inputs[0]
    assert value is not None
    dtype, dims = types.dtype(value), types.dims(value)
    if (dtype is not None and dtype != variable.dtype) or (dims is not None and not _fits(dims, variable.shape)):
        found = f"{dtype_text(dtype) if dtype else 'value'} {shape_text(dims)}"
        problems.add(
            f"variable {variable.id!r} is declared {variable.declared}, and {value.name!r}, {found}, is assigned to it",
            node_text(assign),
        )


def _fits(dims: tuple[Dim, ...], shape: tuple[int, ...]) -> bool:
    return len(dims) == len(shape) and all(
        not isinstance(d, int) or s in (-1, d) for d, s in zip(dims, shape, strict=True)
    )


def _take_initial(variable: Variable, opsets: dict[str, int], problems: Problems) -> None:
    """Folds the initial values of all ReadValues, which must agree; an absent one is zeros without rows."""
    key = f"variable {variable.id!r}"
    first: ir.Node | None = None
    for node in variable.reads:
        source = node.inputs[0] if node.inputs else None
        if source is None:
            continue
        array = constant_value(source, opsets)
        if array is None:
            problems.add(f"{key}: its initial value {source.name!r} is no constant", node_text(node))
            return
        if array.dtype != ir.DataType(variable.dtype).numpy() or not _fits(array.shape, variable.shape):
            found = f"{array.dtype.name} {shape_text(array.shape)}"
            problems.add(f"{key} is declared {variable.declared}, its initial value is {found}", node_text(node))
            return
        if first is not None and not _same(variable.initial, array):
            problems.add(f"{key} has two initial values, in {node_text(first)} and {node_text(node)}")
            return
        first, variable.initial = node, array
    bare = next((node for node in variable.reads if not node.inputs or node.inputs[0] is None), None)
    if first is not None and bare is not None and not _same(variable.initial, zeros(variable.shape, variable.dtype)):
        problems.add(f"{key} has two initial values, in {node_text(first)} and {node_text(bare)}")


def zeros(shape: tuple[int, ...], dtype: int) -> np.ndarray:
    """What a variable holds without an initial value: zeros, with no row along a growing axis."""
    return np.zeros([max(d, 0) for d in shape], ir.DataType(dtype).numpy())


def _same(a: np.ndarray | None, b: np.ndarray) -> bool:
    return a is not None and a.shape == b.shape and a.tobytes() == b.tobytes()
