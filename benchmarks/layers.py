"""Deeper models from shallow ones: the last layer of an exported decoder, again and again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

_LAYER = re.compile(r"(?<=layers\.)\d+(?=[./])|(?<=past_key_values\.)\d+(?=\.)|(?<=present\.)\d+(?=\.)")
"""Where exporters write the number of a layer into a name."""


def deepened(model: onnx.ModelProto, layers: int) -> onnx.ModelProto:
    """A copy with `layers` layers, the further ones repeating the last with the same weights.

    Layers are told by the numbers in the names of nodes, values, past and present, as transformers' exports have them.
    ValueError for a model of one layer, or whose last layer gives more than one value to what follows.
    """
    deep = onnx.ModelProto()
    deep.CopyFrom(model)
    graph = deep.graph
    last = max((number for node in graph.node for number in _numbers(node.name)), default=0)
    body = [node for node in graph.node if last in _numbers(node.name)]
    made = {name for node in body for name in node.output}
    after = sorted(made & {name for node in graph.node if last not in _numbers(node.name) for name in node.input})
    if not last or len(after) != 1:
        raise ValueError(f"layer {last} gives {after}; it can be repeated where that is one value")
    fed = _numbered(after[0], last - 1)
    place = list(graph.node).index(body[-1]) + 1
    further = [node for layer in range(last + 1, layers) for node in _again(body, layer, made, fed, after[0])]
    tail = list(graph.node)[place:]
    del graph.node[place:]
    graph.node.extend(further)
    for node in tail:
        node.input[:] = [_numbered(name, layers - 1) if name == after[0] else name for name in node.input]
    graph.node.extend(tail)
    for ports in (graph.input, graph.output):
        of_last = [port for port in ports if last in _numbers(port.name)]
        for layer in range(last + 1, layers):
            for port in of_last:
                ports.add().CopyFrom(port)
                ports[-1].name = _numbered(port.name, layer)
    return deep


def _again(body: list[onnx.NodeProto], layer: int, made: set[str], fed: str, after: str) -> Iterator[onnx.NodeProto]:
    """The nodes of one more layer, which reads what the one before it gives."""
    for node in body:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = _numbered(node.name, layer)
        copy.output[:] = [_numbered(name, layer) for name in node.output]
        copy.input[:] = [
            _numbered(after, layer - 1)
            if name == fed
            else _numbered(name, layer)
            if name in made or name.startswith("past_key_values.")
            else name
            for name in node.input
        ]
        yield copy


def _numbers(name: str) -> set[int]:
    return {int(found) for found in _LAYER.findall(name)}


def _numbered(name: str, layer: int) -> str:
    return _LAYER.sub(str(layer), name)
