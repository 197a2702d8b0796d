"""Operators that the standard itself defines by others: their function body takes the place of the node.

It is the generic way for operators that have no rule or kernel of their own. The bodies come with the onnx package.
Where the operator set of the model has one, normalisation goes over it as over the rest of the graph; else it is taken
afterwards, in set 21.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused, Problems
from npuc.frontend.facts import Types
from npuc.frontend.infer import infer
from npuc.graph.branches import take_nodes
from npuc.graph.edit import Names, redirect
from npuc.graph.nodes import SOURCE, label, sources
from npuc.graph.tokens import is_plain

MAX_ROUNDS = 8
"""Bodies that use operators with a body of their own; the standard's are nested three deep."""

Needed = Callable[[ir.Node, Types], bool]


def _always(node: ir.Node, types: Types) -> bool:
    return True


def _not_over_the_last_axis(node: ir.Node, types: Types) -> bool:
    """A norm over several axes, or one whose statistics are read; the kernels normalise the last axis."""
    source = node.inputs[0]
    shape = types.dims(source) if source is not None else None
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    last = axis == -1 or (shape is not None and axis % max(len(shape), 1) == len(shape) - 1)
    return not last or any(value.uses() or value.is_graph_output() for value in node.outputs[1:])


BODIES: Mapping[str, Needed] = {
    **dict.fromkeys(
        (
            "Attention", "BlackmanWindow", "CausalConvWithState", "Celu", "CenterCropPad",
            "DepthToSpace", "DynamicQuantizeLinear", "GroupNormalization", "HammingWindow", "HannWindow",
            "HardSwish", "MeanVarianceNormalization", "Mish", "NegativeLogLikelihoodLoss",
            "PRelu", "ReduceLogSum", "ReduceLogSumExp", "RotaryEmbedding", "Selu", "Shrink",
            "SoftmaxCrossEntropyLoss", "Softsign", "SpaceToDepth", "SwiGLU", "ThresholdedRelu",
        ),
        _always,
    ),
    "LayerNormalization": _not_over_the_last_axis,
    "RMSNormalization": _not_over_the_last_axis,
}  # fmt: skip
"""When an operator of the default domain is written out as its function body."""

LLM_OWN = ("Attention", "RotaryEmbedding", "CausalConvWithState", "DynamicQuantizeLinear")
"""In a language model these have rules that know its cache and its rows."""


def write_out_bodies(model: ir.Model, *, llm: bool | None, all_: bool = False) -> int:
    """Writes out every node that `BODIES` names, in place; their number.

    llm: False where the graph is to be compiled as a plain one, None decides by its inputs. all_: raises ModelRefused
    where the model's operator set has no body for a node, which stays otherwise.
    """
    kept = () if is_plain(model, llm) else LLM_OWN
    count = 0
    left: set[ir.Node] = set()
    for _ in range(MAX_ROUNDS):
        found = [n for n in model.graph if n.domain == "" and n.op_type in BODIES and n not in left]
        if not found:
            break
        types, names = infer(model, Problems()), Names(model.graph)
        found = [node for node in found if node.op_type not in kept and BODIES[node.op_type](node, types)]
        if not found:
            break
        for node in found:
            body = _body(node, model.opset_imports[""], types)
            if body is not None:
                _write_out(model, node, *body, names)
                count += 1
            elif all_:
                why = f"operator set {model.opset_imports['']} does not define it by other operators"
                raise ModelRefused([f"{label(node)}: npuc has no kernel for it, and {why}"])
            else:
                left.add(node)
    return count


def _write_out(model: ir.Model, node: ir.Node, function: ir.Function, made: list[int], names: Names) -> None:
    """made: which of the node's outputs the function's are."""
    origin = sources([node])
    defaults = onnx.defs.get_schema(node.op_type, model.opset_imports[""], "").attributes
    for inner in function.graph.all_nodes():
        _resolve_attributes(inner, node, function, defaults)
    for place, formal in enumerate(list(function.graph.inputs)):
        given = node.inputs[place] if place < len(node.inputs) else None
        for use in list(formal.uses()):
            use.node.replace_input_with(use.idx, given)
    outputs = dict(zip(made, function.graph.outputs, strict=True))
    for inner in take_nodes(model.graph, node, function.graph, names):
        inner.metadata_props[SOURCE] = origin
    formals = {formal: node.inputs[i] if i < len(node.inputs) else None for i, formal in enumerate(function.inputs)}
    for place, old in enumerate(node.outputs):
        new = outputs.get(place)
        target = formals.get(new, new) if new is not None else None
        if old.uses() or old.is_graph_output():
            if target is None:
                raise ModelRefused([f"{label(node)}: output {place} is read, and its inputs do not make it"])
            redirect(model.graph, old, target, names)
    model.graph.remove(node, safe=True)


def _body(node: ir.Node, version: int, types: Types) -> tuple[ir.Function, list[int]] | None:
    """The function, and which of the node's outputs its outputs are: those that its inputs allow. None if there is
    none in this operator set.
    """
    schema: Any = onnx.defs.get_schema(node.op_type, version, "")  # its functions are missing from the stubs
    raw = b""
    try:
        if schema.has_context_dependent_function:
            protos = [types.protos.get(v.name or "") if v is not None else onnx.TypeProto() for v in node.inputs]
            if any(proto is None for proto in protos):
                raise ModelRefused([f"{label(node)}: the element type of an input is not known"])
            known = [proto.SerializeToString() for proto in protos if proto is not None]
            content = ir.serde.serialize_node(node).SerializeToString()
            raw = schema.get_context_dependent_function_with_opset_version(version, content, known)
        elif schema.has_function:
            raw = schema.get_function_with_opset_version(version)
    except RuntimeError as error:  # what the library raises where a body cannot be made for these types
        raise ModelRefused([f"{label(node)}: {str(error).splitlines()[0]}"]) from error
    proto = onnx.FunctionProto()
    proto.ParseFromString(raw or b"")
    if not proto.node:
        return None
    inside = {name for inner in proto.node for name in inner.output} | set(proto.input)
    made = [(place, name) for place, name in enumerate(proto.output) if name in inside]
    del proto.output[:]
    proto.output.extend(name for _, name in made)
    return ir.serde.deserialize_function(proto), [place for place, _ in made]


def _resolve_attributes(
    inner: ir.Node, node: ir.Node, function: ir.Function, defaults: Mapping[str, onnx.defs.OpSchema.Attribute]
) -> None:
    """References to the function's attributes become the values of the node, or the defaults of the function, or of the
    operator; what none of them gives is left out.
    """
    for name, attribute in list(inner.attributes.items()):
        if not attribute.is_ref():
            continue
        wanted = attribute.ref_attr_name or ""
        given = node.attributes.get(wanted) or function.attributes.get(wanted)
        if (given is None or given.value is None) and wanted in defaults and defaults[wanted].default_value.name:
            given = ir.serde.deserialize_attribute(defaults[wanted].default_value)
        if given is None or given.value is None:
            inner.attributes.pop(name)
        else:
            inner.attributes[name] = ir.Attr(name, given.type, given.value)
