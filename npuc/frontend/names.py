"""The texts of a model file: valid, and each name given to one thing only."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from npuc.frontend.errors import Problems

_GRAPH, _GRAPHS, _STRING, _STRINGS = (
    onnx.AttributeProto.GRAPH,
    onnx.AttributeProto.GRAPHS,
    onnx.AttributeProto.STRING,
    onnx.AttributeProto.STRINGS,
)

_Holder = onnx.NodeProto | onnx.ValueInfoProto | onnx.TensorProto | onnx.GraphProto | onnx.FunctionProto


def check_names(model: onnx.ModelProto, problems: Problems) -> None:
    """Adds a problem for texts that are not UTF-8 and for names that two values of the main graph have."""
    if any(_is_broken(opset.domain) for opset in model.opset_import):
        problems.add("an operator set has a name that is not UTF-8")
        return
    functions = [texts for function in model.functions for texts in _function_texts(function)]
    for texts in (*_graph_texts(model.graph), *functions):
        if any(_is_broken(text) for text in texts):
            problems.add("a name or text in the graph is not UTF-8")
            return  # one place would be named by bytes that mean nothing
    _check_makers(model.graph, problems)


def _is_broken(text: object) -> bool:
    """Fields of type string come as bytes where they are not UTF-8; attributes are bytes in any case."""
    if isinstance(text, str):
        return False
    try:
        bytes(text).decode() if isinstance(text, bytes | bytearray) else None
    except UnicodeDecodeError:
        return True
    return False


def _function_texts(function: onnx.FunctionProto) -> Iterator[list[object]]:
    yield [function.name, function.domain, *function.input, *function.output, *function.attribute]
    yield [function.doc_string, *_properties(function)]
    for node in function.node:
        yield from _node_texts(node)


def _graph_texts(graph: onnx.GraphProto) -> Iterator[list[object]]:
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield [value.name, value.doc_string, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
        yield _properties(value)
    for tensor in graph.initializer:
        yield [tensor.name, tensor.doc_string, *_properties(tensor), *(e.value for e in tensor.external_data)]
    yield [graph.name, graph.doc_string, *_properties(graph)]
    for node in graph.node:
        yield from _node_texts(node)


def _node_texts(node: onnx.NodeProto) -> Iterator[list[object]]:
    yield [node.name, node.op_type, node.domain, node.doc_string, *node.input, *node.output, *_properties(node)]
    for attribute in node.attribute:
        yield [attribute.name]
        if attribute.type == _STRING:
            yield [attribute.s]
        elif attribute.type == _STRINGS:
            yield list(attribute.strings)
        elif attribute.type == _GRAPH:
            yield from _graph_texts(attribute.g)
        elif attribute.type == _GRAPHS:
            for graph in attribute.graphs:
                yield from _graph_texts(graph)


def _properties(holder: _Holder) -> list[object]:
    return [text for pair in holder.metadata_props for text in (pair.key, pair.value)]


def _check_makers(graph: onnx.GraphProto, problems: Problems) -> None:
    makers: dict[str, str] = {}
    for value in graph.input:
        if value.name in makers:
            problems.add(f"two inputs are named {value.name!r}")
        makers[value.name] = "a graph input"
    for tensor in graph.initializer:
        if makers.get(tensor.name) == "an initializer":
            problems.add(f"two initializers are named {tensor.name!r}")
        makers[tensor.name] = "an initializer"
    for node in graph.node:
        here = f"node {node.name} ({node.op_type})"
        for name in node.output:
            if name and name in makers:
                problems.add(f"value {name!r} is made twice, by {makers[name]} and by {here}")
            makers[name] = here
