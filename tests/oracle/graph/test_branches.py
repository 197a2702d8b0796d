"""If on shapes and on positions; what cannot be settled before the run is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

from npuc.compare.check import Request as Check
from npuc.compare.check import check
from npuc.driver import CompileOptions
from npuc.frontend.errors import ModelRefused
from npuc.graph.options import BuildOptions, OptionError
from npuc.graph.pipeline import build
from tests.oracle.graph.stages import session
from tests.support.decoders import FLOAT, GROUPS, HEADS, HIDDEN, INT, SIZE, VOCAB, GraphMaker
from tests.support.graphs import graph, parsed

ON_A_SHAPE = """
agraph (float[n, 3] x) => (float[m, k] y)
<int64 four = {4}, float two = {2.0}>
{
  shape = Shape <start = 0, end = 1> (x)
  count = Squeeze (shape)
  sum = ReduceSum <keepdims = 0> (x)
  c = Greater (count, four)
  y = If (c) <
    then_branch = long () => (float[a, 3] y1) { double = Mul (x, two) y1 = Concat <axis = 0> (double, x) },
    else_branch = short () => (float[b, 3] y2) { y2 = Add (x, two) }
  >
}
"""


@pytest.mark.parametrize("rows", [3, 4, 5])
def test_a_condition_on_shapes_is_settled(rows):
    x = np.random.default_rng(2).normal(size=(rows, 3)).astype(np.float32)
    (wanted,) = session(parsed(ON_A_SHAPE).SerializeToString()).run(None, {"x": x})
    entry = build(graph(ON_A_SHAPE), BuildOptions(dims={"n": rows})).entry("main")
    assert {node.op_type for node in entry.model.graph} == ({"Mul", "Concat"} if rows > 4 else {"Add"})
    (found,) = session(ir.to_proto(entry.model).SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(found, wanted)


def test_a_condition_on_data_is_refused():
    with pytest.raises(ModelRefused) as error:
        build(graph(ON_A_SHAPE.replace("Greater (count, four)", "Greater (sum, two)")), BuildOptions(dims={"n": 3}))
    assert error.value.problems == (
        "node 'y' (If): its condition 'c' follows from data; only an If whose condition follows from shapes can be "
        "compiled",
    )


LOOP = """
agraph (float[2, 3] x) => (float[2, 3] y)
<int64 four = {4}, bool go = {1}>
{
  y = Loop (four, go, x) <
    body = twice (int64 i, bool c, float[2, 3] a) => (bool d, float[2, 3] r) { d = Identity (c) r = Add (a, a) }
  >
}
"""


def test_a_loop_is_refused_by_name():
    with pytest.raises(ModelRefused) as error:
        build(graph(LOOP), BuildOptions())
    assert error.value.problems == (
        "node 'y' (Loop): a body that runs in a loop has no static program; export the model with the loop unrolled",
    )


TURN = 12


def longrope(path: Path) -> Path:
    """GroupQueryAttention whose angles an If takes from the short or the long table, by the length of the mask."""
    g = GraphMaker(9)
    angle = np.arange(40)[:, None] / 10.0 ** np.arange(SIZE // 2)
    branches = []
    for name, factor, rows in (("long", 3.0, 40), ("short", 1.0, TURN)):
        tables = [f(angle[:rows] / factor).astype(np.float32) for f in (np.cos, np.sin)]
        nodes = [
            helper.make_node("Constant", [], [f"{which}.{name}"], value=onnx.numpy_helper.from_array(table, which))
            for which, table in zip(("cos", "sin"), tables, strict=True)
        ]
        outputs = [
            helper.make_tensor_value_info(f"{which}.{name}", FLOAT, [rows, SIZE // 2]) for which in ("cos", "sin")
        ]
        branches.append(helper.make_graph(nodes, name, [], outputs))
    total = g.op("Gather", g.op("Shape", "attention_mask"), g.const(1), axis=0)
    g.op(
        "If",
        g.op("Greater", total, g.const(TURN)),
        out=["cos", "sin"],
        then_branch=branches[0],
        else_branch=branches[1],
    )
    x = g.op("Gather", g.weight(VOCAB, HIDDEN), "input_ids")
    packed = g.op("MatMul", x, g.weight(HIDDEN, (HEADS + 2 * GROUPS) * SIZE))
    last = g.op("Sub", g.op("ReduceSum", "attention_mask", g.const([1]), keepdims=0), g.const([1]))
    lengths = [g.op("Cast", value, to=onnx.TensorProto.INT32) for value in (last, total)]
    made = g.op(
        "GroupQueryAttention", packed, "", "", "past_k", "past_v", *lengths, "cos", "sin",
        out=["mixed", "new_k", "new_v"], domain="com.microsoft", num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1,
    )  # fmt: skip
    flat = g.op("Add", x, g.op("MatMul", made, g.weight(HEADS * SIZE, HIDDEN)))
    g.op("MatMul", flat, g.weight(HIDDEN, VOCAB), out="logits")
    past, after = [1, GROUPS, "past", SIZE], [1, GROUPS, "all", SIZE]
    inputs = [("input_ids", INT, [1, "rows"]), ("attention_mask", INT, [1, "all"])]
    caches = [("past_k", FLOAT, past), ("past_v", FLOAT, past)]
    outputs = [("logits", FLOAT, [1, "rows", VOCAB]), ("new_k", FLOAT, after), ("new_v", FLOAT, after)]
    return g.write(path, [*inputs, *caches], outputs, 21)


@pytest.mark.parametrize("chunk", [1, 4, 5])
def test_angles_that_turn_with_the_length(chunk, tmp_path):
    """The prompt stays below the turn, the answer goes beyond it."""
    options = CompileOptions(precision="f32", chunk=chunk, max_prompt_len=9, capacities=(11, 24))
    result = check(Check(longrope(tmp_path / "m.onnx"), options, prompt=[3, 1, 4, 1, 5, 9, 2], tokens=12))
    assert result.agrees
    assert max(part.max_abs for part in result.parts.values()) < 1e-4


def test_a_prompt_beyond_the_turn_is_refused(tmp_path):
    with pytest.raises(OptionError) as error:
        build(longrope(tmp_path / "m.onnx"), BuildOptions(max_prompt_len=13, chunk=4, capacities=(24,)))
    assert str(error.value) == (
        "max_prompt_len 13: for prompts of more than 12 tokens the model turns to other rotary factors from the first "
        "token on; compile with --max-prompt-len 12 or less (answers may get longer)"
    )
