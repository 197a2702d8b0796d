"""ReadValue and Assign: what each rule of the format accepts and refuses, and what becomes of the nodes."""
# ruff: noqa: E501 (graphs and messages in one piece)

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from npuc.frontend import LoadedModel, ModelRefused, check_model, load
from npuc.graph.state import classify, state_to_arguments
from tests.support.graphs import graph
from tests.support.models import make_case

NPUC = '"npuc" : 1'
IO = "g (float[2] x) => (float[2] y)"
SCALARS = '<variable_id = "n", shape : ints = [], dtype = 7>'


def read(id="v", shape="[2]", dtype=1):
    return f'ReadValue <variable_id = "{id}", shape = {shape}, dtype = {dtype}>'


def assign(id="v", shape="[2]", dtype=1):
    return read(id, shape, dtype).replace("ReadValue", "Assign")


def refused(body: str, extra: str = NPUC, **options) -> list[str]:
    """Problems of a model; the check and the conversion must name the same."""
    model = graph(body, extra=extra)
    with pytest.raises(ModelRefused) as error:
        state_to_arguments(model, **options)
    return list(error.value.problems)


BROKEN = [
    (
        f"{IO} {{ [r] b = npuc.{read()} () [a] t = npuc.{assign()} (x) [c] u = npuc.{assign()} (b) y = Add (x, b) }}",
        "variable 'v' is assigned twice, in node a (npuc.Assign) and node c (npuc.Assign)",
    ),
    (
        f"{IO} {{ [r] b = npuc.{read()} () [a] t = npuc.{assign(shape='[3]')} (x) y = Add (x, b) }}",
        "variable 'v' is float [2] in node r (npuc.ReadValue) and float [3] in node a (npuc.Assign)",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign(shape='[3]')} (x) y = Relu (x) }}",
        "node a (npuc.Assign): variable 'v' is declared float [3], and 'x', float [2], is assigned to it",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign(dtype=7)} (x) y = Relu (x) }}",
        "node a (npuc.Assign): variable 'v' is declared int64 [2], and 'x', float [2], is assigned to it",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign(dtype=99)} (x) y = Relu (x) }}",
        "node a (npuc.Assign): attribute 'dtype' is 99, which is no element type of a state",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign(dtype=8)} (x) y = Relu (x) }}",
        "node a (npuc.Assign): attribute 'dtype' is 8, which is no element type of a state",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign(shape='[-2]')} (x) y = Relu (x) }}",
        "node a (npuc.Assign): attribute 'shape' is [-2]; an extent is a number, or -1 where it grows",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign(shape='[-1, -1]')} (x) y = Relu (x) }}",
        "node a (npuc.Assign): attribute 'shape' is [-1, -1]; a variable grows along one axis",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign(id='')} (x) y = Relu (x) }}",
        "node a (npuc.Assign): attribute 'variable_id' is empty",
    ),
    (
        f'{IO} {{ [a] t = npuc.Assign <variable_id = "v", shape = [2]> (x) y = Relu (x) }}',
        "node a (npuc.Assign): misses its attribute 'dtype'",
    ),
    (
        f'{IO} {{ [a] t = npuc.Assign <variable_id = 5, shape = [2], dtype = 1> (x) y = Relu (x) }}',
        "node a (npuc.Assign): attribute 'variable_id' is an int, not a string",
    ),
    (
        f'{IO} {{ [a] t = npuc.Assign <variable_id = "v", shape = [2], dtype = 1, init = 0> (x) y = Relu (x) }}',
        "node a (npuc.Assign): has an unknown attribute 'init'",
    ),
    (
        f"{IO} {{ [a] t = npuc.{assign()} () y = Relu (x) }}",
        "node a (npuc.Assign): takes one input, the value, and makes at most one output",
    ),
    (
        f"{IO} {{ [r] b = npuc.{read()} (x, x) y = Relu (b) }}",
        "node r (npuc.ReadValue): takes at most one input, the initial value, and makes one output",
    ),
    (
        f"{IO} {{ [r] b = npuc.{read()} (x) y = Relu (b) }}",
        "node r (npuc.ReadValue): variable 'v': its initial value 'x' is no constant",
    ),
    (
        f"{IO} <float[3] w = {{1,2,3}}> {{ [r] b = npuc.{read()} (w) y = Add (x, b) }}",
        "node r (npuc.ReadValue): variable 'v' is declared float [2], its initial value is float32 [3]",
    ),
    (
        f"{IO} <int64[2] w = {{1,2}}> {{ [r] b = npuc.{read()} (w) y = Add (x, b) }}",
        "node r (npuc.ReadValue): variable 'v' is declared float [2], its initial value is int64 [2]",
    ),
    (
        f"{IO} <float[2] w = {{1,2}}> {{ [r] b = npuc.{read()} (w) [s] c = npuc.{read()} () y = Add (c, b) }}",
        "variable 'v' has two initial values, in node r (npuc.ReadValue) and node s (npuc.ReadValue)",
    ),
    (
        f"g (float[2] x, bool c) => (float[2] y) {{ [i] y = If (c) <then_branch = t () => (float[2] p) "
        f"{{ [r] p = npuc.{read()} () }}, else_branch = e () => (float[2] q) {{ q = Neg (x) }}> }}",
        "node r (npuc.ReadValue): is inside a subgraph that does not fold away; state must be in the main graph",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), BROKEN)
def test_broken_rules(body, message):
    assert refused(body) == [message]


@pytest.mark.parametrize(("body", "message"), BROKEN)
def test_check_model_says_the_same(body, message):
    with pytest.raises(ModelRefused) as error:
        check_model(LoadedModel(graph(body, extra=NPUC)))
    assert message in error.value.problems


def test_a_port_in_the_way_of_a_state():
    model = graph(f"g (float[2] p) => (float[2] y) {{ [r] b = npuc.{read()} () y = Add (p, b) }}", extra=NPUC)
    model.graph.inputs[0].name = "state.v"
    with pytest.raises(ModelRefused) as error:
        state_to_arguments(model)
    assert error.value.problems == (
        "state 'v' becomes the value 'state.v', which is the name of an input or output: rename that",
    )


def test_another_version_of_the_domain():
    body = f"{IO} {{ [r] b = npuc.{read()} () y = Add (x, b) }}"
    assert refused(body, extra='"npuc" : 2') == ["operator set 2 of domain npuc; npuc reads version 1"]


def test_all_broken_rules_at_once():
    body = f"{IO} {{ [a] t = npuc.{assign(id='p', shape='[3]')} (x) [b] u = npuc.{assign(id='q', dtype=99)} (x) y = Relu (x) }}"
    assert len(refused(body)) == 2


def test_growth_must_be_bounded_outside_a_decoder():
    body = f"g (float[1,4] x) => (float[N,4] y) {{ [r] b = npuc.{read('rows', '[-1,4]')} () y = Concat <axis = 0> (b, x) " \
           f"[a] t = npuc.{assign('rows', '[-1,4]')} (y) }}"  # fmt: skip
    assert refused(body) == [
        "state 'rows' grows along axis 0 and nothing bounds it: give its largest extent, --state-rows rows=N"
    ]
    assert refused(body, state_rows={"rows": 0}) == ["--state-rows rows=0: at least 1 are needed"]
    assert refused(body, state_rows={"rows": 3, "cols": 3}) == [
        "--state-rows cols: no growing state has this name (those that grow: rows)"
    ]
    states = state_to_arguments(graph(body, extra=NPUC), {"rows": 8}).states
    assert [(s.id, s.growing_axis, s.max_rows) for s in states] == [("rows", 0, 8)]


def test_a_decoder_bounds_growth_but_starts_empty():
    body = "g (int64[1,S] input_ids) => (float[1,S,4] y) <float[9,4] e = {%s}, float[1,%d,4] start = {%s}> { " \
           "h = Gather (e, input_ids) [r] b = npuc.ReadValue <variable_id = \"c\", shape = [1,-1,4], dtype = 1> (start) " \
           "[k] y = Concat <axis = 1> (b, h) [a] t = npuc.Assign <variable_id = \"c\", shape = [1,-1,4], dtype = 1> (y) }"  # fmt: skip
    table = ",".join("1" * 36)
    assert refused(body % (table, 2, ",".join("1" * 8))) == [
        "state 'c' starts with 2 rows; a growing state of a decoder starts without any"
    ]
    states = state_to_arguments(graph((body % (table, 0, "")), extra=NPUC)).states
    assert states[0].initial is not None and states[0].initial.shape == (1, 0, 4)


def test_sound_forms():
    """Read-only, write-only, swapped and scalar variables; an Assign whose output is read, or a graph output, or absent."""
    body = f"""g (float[2] x) => (float[2] y, float[2] was, float[2] now, int64 count) <float[2] start = {{3, 4}}, int64 one = {{1}}> {{
        [wo] w = npuc.{assign("write_only")} (x)
        [pa] p = npuc.{assign("p")} (q0)
        [q] q0 = npuc.{read("q")} ()
        [qa] unused = npuc.{assign("q")} (p0)
        [p] p0 = npuc.{read("p")} (start)
        [ro] r = npuc.{read("read_only")} (start)
        [n] n0 = npuc.ReadValue {SCALARS} ()
        [up] count = Add (n0, one)
        [na] nn = npuc.Assign {SCALARS} (count)
        [ya] y0 = Add (x, r)
        [last] y1 = npuc.{assign("last")} (y0)
        y = Add (y1, p)
        [wr] was = npuc.{read("last")} ()
        [nr] now = npuc.{assign("shown")} (y1)
    }}"""
    model = graph(body, extra=NPUC)
    next(n for n in model.graph if n.name == "qa").resize_outputs(0)
    check_model(LoadedModel(model))
    pure, states = state_to_arguments(model)
    assert {(s.id, s.input, s.output) for s in states} == {
        ("write_only", None, "next.write_only"),
        ("p", "state.p", "next.p"),
        ("q", "state.q", "next.q"),
        ("read_only", "state.read_only", None),
        ("n", "state.n", "next.n"),
        ("last", "state.last", "next.last"),
        ("shown", None, "next.shown"),
    }
    assert not [n for n in pure.graph if n.domain == "npuc"] and "npuc" not in pure.opset_imports
    by_id = {s.id: s for s in states}
    np.testing.assert_array_equal(by_id["p"].initial, np.array([3, 4], np.float32))
    assert by_id["q"].initial is None
    assert (by_id["n"].shape, by_id["n"].dtype, by_id["n"].growing_axis) == ((), 7, None)
    assert by_id["p"].nodes == ("pa", "p") and by_id["p"].form == "variable"
    kinds = {c.id: c.kind for c in classify(states, pure)}
    assert kinds == {
        "write_only": "write_only", "p": "replace", "q": "replace", "read_only": "read_only", "n": "replace", "last": "replace",
        "shown": "write_only",
    }  # fmt: skip
    assert [n for n in model.graph if n.domain == "npuc"], "the given model stays as it is"


def test_initial_values_fold():
    body = f"""{IO} <int64[1] size = {{2}}, float[1] half = {{0.5}}> {{
        zeros = ConstantOfShape (size)
        start = Add (zeros, half)
        [r] b = npuc.{read()} (start)
        [s] c = npuc.{read()} (start)
        t = Add (b, c)
        y = Add (x, t)
    }}"""
    (state,) = state_to_arguments(graph(body, extra=NPUC)).states
    np.testing.assert_array_equal(state.initial, np.array([0.5, 0.5], np.float32))


def test_ids_are_exact():
    body = f"{IO} {{ b = npuc.{read('Cache')} () c = npuc.{read('cache')} () d = npuc.{read('a b/ä')} () y = Sum (b, c, d) }}"
    assert [s.id for s in state_to_arguments(graph(body, extra=NPUC)).states] == ["Cache", "cache", "a b/ä"]


def test_inner_values_step_aside():
    body = f"{IO} <float[2] w = {{1, 2}}> {{ m = Neg (x) [r] b = npuc.{read()} () s = Sum (b, m, w) y = Relu (s) " \
           f"[a] t = npuc.{assign()} (y) }}"  # fmt: skip
    model = graph(body, extra=NPUC)
    next(iter(model.graph)).outputs[0].name = "state.v"
    model.graph.initializers["w"].name = "next.v"
    pure, _ = state_to_arguments(model)
    names = [v.name for n in pure.graph for v in n.outputs]
    names += [v.name for v in (*pure.graph.inputs, *pure.graph.initializers.values())]
    assert len(names) == len(set(names)) and "state.v" in [v.name for v in pure.graph.inputs]


def test_constant_branches_and_functions_are_resolved():
    body = f"""<ir_version: 9, opset_import: ["" : 17, "npuc" : 1, "local" : 1]>
        g (float[2] x) => (float[2] y) <bool yes = {{1}}> {{
            [i] b = If (yes) <then_branch = t () => (float[2] p) {{ [r] p = npuc.{read()} () }},
                              else_branch = e () => (float[2] q) {{ [s] q = npuc.{read(id="other")} () }}>
            y = local.keep (b, x)
        }}
        <domain: "local", opset_import: ["" : 17, "npuc" : 1]>
        keep (b, x) => (y) {{ y = Add (b, x) t = npuc.{assign()} (y) }}"""
    import onnx.parser

    model = ir.from_proto(onnx.parser.parse_model(body))
    check_model(LoadedModel(model))
    pure, (state,) = state_to_arguments(model)
    assert (state.input, state.output) == ("state.v", "next.v")
    assert [n.op_type for n in pure.graph] == ["Add", "Identity"]


REFUSED_CASES = [
    "two_assigns", "other_shape", "other_type", "lone_assign_shape", "lone_assign_type", "type_as_text", "unknown_type",
    "no_variable_id", "open_growth",
]  # fmt: skip


@pytest.fixture(scope="module")
def refused_cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    with pytest.raises(FileNotFoundError):  # the generator writes a folder for each case, none of its own name
        make_case("a12_state_refused", folder)
    return folder


@pytest.mark.parametrize("name", REFUSED_CASES)
def test_refused_cases(name, refused_cases):
    folder = refused_cases / f"a12_{name}"
    with np.load(folder / "expected.npz") as arrays:
        words = arrays["must_mention"].tolist()
    with pytest.raises(ModelRefused) as error:
        loaded = load(folder / "model.onnx")
        check_model(loaded)
        state_to_arguments(loaded.model)
    assert words and [word for word in words if word not in str(error.value)] == []
    assert len(error.value.problems) == 1


def narrowed(initial: str) -> str:
    """A variable that the graph narrows when it reads it and widens before it assigns it."""
    form = 'variable_id = "v", shape = [1, -1, 2], dtype = 1'
    return (
        f"g (float16[1,1,2] x) => (float16[1,r,2] y) {initial.partition('|')[0]} {{ "
        f"r = npuc.ReadValue <{form}> ({initial.partition('|')[2]}) h = Cast <to = 10> (r) "
        f"b = Concat <axis = 1> (h, x) y = Neg (b) w = Cast <to = 1> (b) t = npuc.Assign <{form}> (w) }}"
    )


def test_a_growing_variable_that_is_narrowed_keeps_the_narrow_type():
    model, (state,) = state_to_arguments(graph(narrowed(""), extra=NPUC), {"v": 4})
    assert [node.op_type for node in model.graph] == ["Concat", "Neg"]
    assert state.dtype == ir.DataType.FLOAT16
    assert [value.dtype for value in (*model.graph.inputs, *model.graph.outputs)] == [ir.DataType.FLOAT16] * 4
    assert [value.name for value in model.graph.outputs] == ["y", "next.v"]


def test_one_that_starts_with_rows_keeps_the_type_it_is_declared_with():
    model, (state,) = state_to_arguments(graph(narrowed("<float[1,1,2] i = {0.1, 0.2}>|i"), extra=NPUC), {"v": 4})
    assert [node.op_type for node in model.graph] == ["Cast", "Concat", "Neg", "Cast"]
    assert state.dtype == ir.DataType.FLOAT
