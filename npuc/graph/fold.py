"""Constant folding: one pass in graph order computes what constants and shapes decide, and types everything else."""

from __future__ import annotations

import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.clean import remove_dead
from npuc.graph.infer import Dims, Fact, Inference
from npuc.graph.interpret import Interpreter, input_facts
from npuc.graph.nodes import label


def fold(graph: ir.Graph, shapes: dict[ir.Value, Dims], inference: Inference) -> int:
    """Folds a sorted graph in place and gives every remaining value its type and static shape.

    shapes: of the graph inputs. Returns the number of nodes folded. Raises ModelRefused naming the node whose
    output keeps an unknown extent, or whose inputs do not fit.
    """
    interpreter = Interpreter(inference, input_facts(shapes))
    dead: list[ir.Node] = []
    for node in graph:
        facts = interpreter.step(node)
        for output, fact in zip(node.outputs, facts, strict=True):
            interpreter.facts[output] = fact
        if all(fact.tensor is not None for fact in facts):
            dead.append(node)
            for output, fact in zip(node.outputs, facts, strict=True):
                _to_initializer(graph, output, fact)
        else:
            _annotate(node, facts)
    graph.remove(dead, safe=True)
    remove_dead(graph)
    for node in graph:
        _check_static(node)
    return len(dead)


def _to_initializer(graph: ir.Graph, output: ir.Value, fact: Fact) -> None:
    if not output.uses() and not output.is_graph_output():
        return
    assert fact.tensor is not None and fact.shape is not None
    name = output.name or ""
    value = ir.Value(name=name, shape=ir.Shape(fact.shape), type=ir.TensorType(fact.dtype), const_value=fact.tensor)
    output.name = f"{name}~folded"
    output.replace_all_uses_with(value, replace_graph_outputs=True)
    graph.register_initializer(value)


def _annotate(node: ir.Node, facts: list[Fact]) -> None:
    for output, fact in zip(node.outputs, facts, strict=True):
        if output.name:
            output.shape = None if fact.shape is None else ir.Shape(fact.shape)
            output.type = ir.TensorType(fact.dtype)


def _check_static(node: ir.Node) -> None:
    for output in node.outputs:
        if output.name and (output.shape is None or not output.shape.is_static()):
            raise ModelRefused(
                [
                    f"{label(node)}: output {output.name!r} has an extent that follows from no size of the "
                    "model; operators whose result size depends on data are not supported"
                ]
            )
