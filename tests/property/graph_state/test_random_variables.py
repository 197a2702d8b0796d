"""Random graphs of variables in random node orders, against an interpreter of the format, sentence by sentence."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from npuc.frontend import LoadedModel, check_model
from npuc.graph.normalise import normalise
from npuc.graph.state import state_to_arguments

IDS = ("a", "A", "b", "state.a", "next.b")
FUNCTIONS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
DECLARED = {"shape": [3], "dtype": onnx.TensorProto.FLOAT}


@st.composite
def programs(draw):
    """(nodes in an order of their data, initial values): each node is (op, inputs, output)."""
    values = ["x"]
    nodes: list[tuple[str, list[str], str]] = []
    initial = {}
    for key in draw(st.lists(st.sampled_from(IDS), unique=True, min_size=1)):
        if draw(st.booleans()):
            initial[key] = f"start_{key}"
        for again in range(draw(st.integers(0, 2))):
            values.append(f"read_{key}_{again}")
            nodes.append((f"ReadValue {key}", [initial[key]] if key in initial else [], values[-1]))
    for number in range(draw(st.integers(1, 5))):
        op, left, right = (
            draw(st.sampled_from(sorted(FUNCTIONS))),
            draw(st.sampled_from(values)),
            draw(st.sampled_from(values)),
        )
        values.append(f"v{number}")
        nodes.append((op, [left, right], values[-1]))
    for key in draw(st.lists(st.sampled_from(IDS), unique=True)):
        source = draw(st.sampled_from(values))
        output = draw(st.sampled_from(["", f"kept_{key}"]))
        nodes.append((f"Assign {key}", [source], output))
        if output:
            values.append(output)
    outputs = draw(st.lists(st.sampled_from(values[1:]), unique=True, min_size=1))
    order = draw(st.permutations(range(len(nodes))))
    return nodes, initial, outputs, order


def model_of(nodes, initial, outputs, order) -> onnx.ModelProto:
    made = []
    for i, (op, inputs, output) in enumerate(nodes):
        kind, _, key = op.partition(" ")
        if key:
            node = helper.make_node(
                kind, inputs, [output] if output else [], f"n{i}", domain="npuc", variable_id=key, **DECLARED
            )
        else:
            node = helper.make_node(kind, inputs, [output], f"n{i}")
        made.append(node)
    info = [helper.make_tensor_value_info(name, 1, [3]) for name in ("x", *outputs)]
    starts = [onnx.numpy_helper.from_array(start_value(key), name) for key, name in initial.items()]
    graph = helper.make_graph([made[i] for i in order], "g", info[:1], info[1:], starts)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("npuc", 1)], ir_version=9
    )


def start_value(key: str) -> np.ndarray:
    return np.array([IDS.index(key) + 1, 2, 3], np.float32)


def interpret(
    nodes, state: dict[str, np.ndarray], x: np.ndarray
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(all values, state after the run). All reads see `state`, whatever is assigned."""
    values, after = {"x": x}, dict(state)
    for op, inputs, output in nodes:
        kind, _, key = op.partition(" ")
        if kind == "ReadValue":
            result = state[key]
        elif kind == "Assign":
            result = after[key] = values[inputs[0]]
        else:
            result = FUNCTIONS[op](values[inputs[0]], values[inputs[1]])
        values[output] = result
    return values, after


@given(programs())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_pure_function_is_the_run(program):
    nodes, initial, outputs, order = program
    model = ir.from_proto(model_of(nodes, initial, outputs, order))
    check_model(LoadedModel(model))
    pure, states = state_to_arguments(model)
    keys = {op.partition(" ")[2] for op, _, _ in nodes} - {""}
    assert {s.id for s in states} == keys
    runner = ort.InferenceSession(ir.to_proto(normalise(pure)).SerializeToString(), providers=["CPUExecutionProvider"])
    read = {op.partition(" ")[2] for op, _, _ in nodes if op.startswith("ReadValue")}
    state = {key: start_value(key) if key in initial else np.zeros(3, np.float32) for key in IDS}
    for run in range(3):
        x = np.array([run + 1, 0.5, -1], np.float32)
        values, after = interpret(nodes, state, x)
        feeds = {"x": x} | {s.input: state[s.id] for s in states if s.input}
        assert {s.id for s in states if s.input} == read
        feeds = {name: value for name, value in feeds.items() if name in {i.name for i in runner.get_inputs()}}
        names = [*outputs, *(s.output for s in states if s.output)]
        wanted = [values[name] for name in outputs] + [after[s.id] for s in states if s.output]
        for got, want in zip(runner.run(names, feeds), wanted, strict=True):
            np.testing.assert_array_equal(got, want)
        state = after
    for s in states:
        if s.input:
            start = s.initial if s.initial is not None else np.zeros(3, np.float32)
            np.testing.assert_array_equal(start, start_value(s.id) if s.id in initial else np.zeros(3))
