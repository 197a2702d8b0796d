"""Constant folding: one pass in graph order computes what constants and shapes decide, and types everything else."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused, Problems
from npuc.graph.clean import remove_dead
from npuc.graph.evaluate import EvaluationError
from npuc.graph.infer import Dims, Fact, Inference
from npuc.graph.interpret import Interpreter, input_facts
from npuc.graph.nodes import DOMAIN, initializer, is_op, label


def fold(graph: ir.Graph, shapes: dict[ir.Value, Dims], inference: Inference, *, empty_is_known: bool = False) -> int:
    """Folds a sorted graph in place and gives every remaining value its type and static shape.

    shapes: of the graph inputs. empty_is_known: a value without elements is a constant, whatever makes it. Returns the
    number of nodes folded. Raises ModelRefused naming the node whose output keeps an unknown extent, or whose inputs do
    not fit.
    """
    interpreter = Interpreter(inference, input_facts(shapes))
    if empty_is_known:
        _detach_empty_inputs(graph, interpreter)
    dead: list[ir.Node] = []
    for node in list(graph):
        if _settled(interpreter, node):
            continue
        facts = _step(interpreter, node)
        if empty_is_known:
            facts = [_known_if_empty(fact) for fact in facts]
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
    _check_static(graph)
    return len(dead)


def _settled(interpreter: Interpreter, node: ir.Node) -> bool:
    """Whether a node is a Choose whose condition is known: its readers then read the branch that is taken. Raises
    ModelRefused where the condition is not known."""
    if not is_op(node, "Choose", domain=DOMAIN):
        return False
    condition, then, other = node.inputs
    assert condition is not None and then is not None and other is not None
    tensor = interpreter.fact(condition).tensor
    if tensor is None:
        raise ModelRefused(
            [
                f"node {(node.name or '').removesuffix('~Choose')!r} (If): its condition {condition.name!r} follows "
                "from data; only an If whose condition follows from shapes can be compiled"
            ]
        )
    taken = then if bool(tensor.numpy().reshape(())) else other
    node.outputs[0].replace_all_uses_with(taken, replace_graph_outputs=True)
    return True


def _step(interpreter: Interpreter, node: ir.Node) -> list[Fact]:
    try:
        return interpreter.step(node)
    except EvaluationError as error:
        raise ModelRefused([str(error)]) from error


def _known_if_empty(fact: Fact) -> Fact:
    if fact.tensor is not None or not fact.static or fact.size or fact.dtype == ir.DataType.UNDEFINED:
        return fact
    assert fact.shape is not None
    shape = tuple(extent or 0 for extent in fact.shape)
    return Fact(fact.dtype, shape, ir.Tensor(np.zeros(shape, fact.dtype.numpy())))


def _detach_empty_inputs(graph: ir.Graph, interpreter: Interpreter) -> None:
    """Readers of an input without elements read a constant."""
    for value in graph.inputs:
        fact = _known_if_empty(interpreter.fact(value))
        if fact.tensor is not None and value.uses():
            constant = initializer(graph, fact.tensor.numpy(), f"{value.name}~empty")
            value.replace_all_uses_with(constant, replace_graph_outputs=True)


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


def _check_static(graph: ir.Graph) -> None:
    """Raises ModelRefused naming each node that makes an unknown extent of known ones."""
    problems = Problems()
    for node in graph:
        if all(value is None or value.is_graph_input() or _is_static(value) for value in node.inputs):
            for output in [output for output in node.outputs if output.name and not _is_static(output)]:
                problems.add(
                    f"output {output.name!r} has an extent that follows from no size of the model; operators whose "
                    "result size depends on data are not supported",
                    label(node),
                )
    problems.refuse()


def _is_static(value: ir.Value) -> bool:
    return value.const_value is not None or (value.shape is not None and value.shape.is_static())
