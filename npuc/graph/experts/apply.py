"""The step that says every mixture of experts as npuc.MoE(x, indices, weights, parameters)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from npuc.graph.edit import Names, redirect
from npuc.graph.experts.find import Candidate, candidates, routers
from npuc.graph.experts.form import KINDS, Activation, Experts, Stack
from npuc.graph.experts.prove import prove
from npuc.graph.experts.sizes import Sizes
from npuc.graph.infer import Dims, Inference
from npuc.graph.nodes import DOMAIN, SOURCE, sources

OPERATOR = "MoE"


def say_experts(graph: ir.Graph, shapes: Mapping[ir.Value, Dims], inference: Inference, report: list[str]) -> int:
    """Replaces every mixture that is found and proven, in place; their number. shapes: of the inputs, for the proof."""
    names = Names(graph)
    count = 0
    for topk in routers(graph):
        sizes = Sizes(graph, shapes, inference)
        for candidate in candidates(topk, sizes):
            proven = prove(candidate, sizes)
            if proven is not None:
                _replace(graph, candidate, *proven, names)
                count += 1
                report.append(_line(candidate, *proven))
                break
    return count


def _line(candidate: Candidate, experts: Experts, activation: Activation) -> str:
    e, f, k = experts.gate.shape
    gated = "" if experts.up is None else "gated "
    return f"mixture of {e} experts {k} x {f}, {gated}{activation.kind}: {len(candidate.region.nodes)} nodes, proven"


def _replace(graph: ir.Graph, candidate: Candidate, experts: Experts, activation: Activation, names: Names) -> None:
    before = candidate.result.producer()
    assert before is not None
    dtype = candidate.x.dtype or ir.DataType.FLOAT
    inputs = [candidate.x, candidate.indices, candidate.weights, *parameters(graph, experts, dtype, before, names)]
    out = experts_node(graph, before, inputs, experts, activation, names, list(candidate.region.nodes))
    out.type, out.shape = candidate.result.type, candidate.result.shape
    redirect(graph, candidate.result, out, names)


def parameters(graph: ir.Graph, experts: Experts, dtype: ir.DataType, node: ir.Node, names: Names) -> list[ir.Value]:
    """The six parameter inputs as initializers: gate, up, down and their biases.

    Stacks are made when they are read. Experts without a second product give the first again, those without a bias
    zeros: the operator has no optional inputs.
    """
    up = experts.up or experts.gate
    e, f, _ = experts.gate.shape
    stacks = [
        ("gate", experts.gate), ("up", up), ("down", experts.down),
        ("gate_bias", experts.gate_bias or _zeros((e, f))), ("up_bias", experts.up_bias or _zeros((e, f))),
        ("down_bias", experts.down_bias or _zeros(experts.down.shape[:2])),
    ]  # fmt: skip
    values: list[ir.Value] = []
    for part, stack in stacks:
        if stack is experts.gate and part == "up":
            values.append(values[0])
            continue
        values.append(_initializer(graph, stack, dtype, names.value(f"{node.name}.{part}")))
    return values


def experts_node(
    graph: ir.Graph, before: ir.Node, inputs: list[ir.Value], experts: Experts, activation: Activation, names: Names,
    origin: list[ir.Node],
) -> ir.Value:  # fmt: skip
    """A node npuc.MoE in front of another; its output."""
    name = names.node(f"{before.name}~{OPERATOR}")
    attrs = {
        "kind": KINDS.index(activation.kind), "gated": int(experts.up is not None), "alpha": float(activation.alpha),
        "limit": float(activation.limit), "beta": float(activation.beta),
    }  # fmt: skip
    out = ir.Value(name=names.value(f"{name}_out"))
    node = ir.Node(
        DOMAIN, OPERATOR, inputs, ir.convenience.convert_attributes(attrs), outputs=[out], name=name,
        metadata_props={SOURCE: sources(origin)},
    )  # fmt: skip
    graph.insert_before(before, node)
    return out


def _zeros(shape: tuple[int, ...]) -> Stack:
    return Stack(shape, lambda: np.zeros(shape))


def _initializer(graph: ir.Graph, stack: Stack, dtype: ir.DataType, name: str) -> ir.Value:
    shape = ir.Shape(stack.shape)

    def make() -> ir.TensorProtocol:
        return ir.Tensor(np.ascontiguousarray(stack.make().astype(dtype.numpy())), name=name)

    tensor = ir.LazyTensor(make, dtype=dtype, shape=shape, cache=False, name=name)
    value = ir.Value(name=name, shape=shape, type=ir.TensorType(dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
