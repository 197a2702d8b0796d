"""The step that says every mixture of experts as npuc.MoE(x, indices, weights, parameters)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import ModelRefused
from npuc.graph.edit import Names, redirect
from npuc.graph.experts.find import Candidate, candidates, routers
from npuc.graph.experts.form import KINDS, Activation, Experts, Stack
from npuc.graph.experts.known import Known
from npuc.graph.experts.sizes import Sizes
from npuc.graph.infer import Dims, Inference
from npuc.graph.nodes import DOMAIN, SOURCE, is_op, label, sources

OPERATOR = "MoE"


def say_experts(graph: ir.Graph, shapes: Mapping[ir.Value, Dims], inference: Inference, report: list[str]) -> int:
    """Replaces every mixture that is found and proven, in place; their number. shapes: of the inputs, for the proof.

    Raises ModelRefused naming a router behind which nothing is proven and sizes depend on data.
    """
    names, known = Names(graph), Known()
    count = 0
    for topk in routers(graph):
        sizes = Sizes(graph, shapes, inference)
        proven = _proven(topk, sizes, known)
        if not isinstance(proven, str):
            _replace(graph, *proven, names)
            count += 1
            report.append(_line(*proven))
            continue
        sized_by_data = _sized_by_data(topk, sizes)
        if sized_by_data is not None:
            raise ModelRefused(
                [
                    f"{label(sized_by_data)}: the size of its output depends on data, which only mixtures of experts "
                    f"may; behind {label(topk)} none is proven: {proven}"
                ]
            )
    return count


Proven = tuple[Candidate, Experts, Activation]


def _proven(topk: ir.Node, sizes: Sizes, known: Known) -> Proven | str:
    """The first candidate that is proven, else the reason that came furthest."""
    reason = "nothing behind it has the products of experts"
    for candidate in candidates(topk, sizes):
        found = known.prove(candidate, sizes)
        if not isinstance(found, str):
            return candidate, *found
        if found.startswith("none of") or not reason.startswith("none of"):
            reason = found
    return reason


def _sized_by_data(topk: ir.Node, sizes: Sizes) -> ir.Node | None:
    """The first node behind a router whose output has an extent that its sizes do not give."""
    derived = set(topk.outputs)
    for node in sizes.order:
        if is_op(node, "Shape", "Size") or derived.isdisjoint(v for v in node.inputs if v is not None):
            continue
        derived.update(node.outputs)
        fact = sizes.fact(node.outputs[0])
        if fact is not None and fact.shape is not None and None in fact.shape:
            return node
    return None


def _line(candidate: Candidate, experts: Experts, activation: Activation) -> str:
    e, f, k = experts.gate.shape
    gated = "" if experts.up is None else "gated "
    details = [
        f"{name} {value:g}"
        for name, value, usual in (
            ("alpha", activation.alpha, 1.0),
            ("limit", activation.limit, 0.0),
            ("beta", activation.beta, 0.0),
        )
        if value != usual
    ]
    what = ", ".join([gated + activation.kind, *details])
    return (
        f"{len(candidate.region.nodes)} nodes are a mixture of {e} experts of {k} x {f}, {what}: proven by evaluation"
    )


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
    return Stack(shape, lambda _: np.zeros(shape[1:]))


def _initializer(graph: ir.Graph, stack: Stack, dtype: ir.DataType, name: str) -> ir.Value:
    shape = ir.Shape(stack.shape)

    def make() -> ir.TensorProtocol:
        return ir.Tensor(stack.array(dtype.numpy()), name=name)

    tensor = ir.LazyTensor(make, dtype=dtype, shape=shape, cache=False, name=name)
    value = ir.Value(name=name, shape=shape, type=ir.TensorType(dtype), const_value=tensor)
    graph.register_initializer(value)
    return value
