"""The metadata object: ports in the types that the tasks use, states, and the numbers of a language model."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from npuc.emit import EmitError
from npuc.graph.entry import EntryGraph, LlmInfo, PortSpec
from npuc.report.metadata import EntryPorts, Port, build_metadata, entry_ports
from npuc.tasks.graph import Buffer, CopyOp, Role
from npurt.abi.dtypes import DType
from npurt.metadata import parse_metadata
from tests.unit.emit.programs import Draft, model, view

FLOAT, INT64, STRING = 1, 7, 8  # onnx.TensorProto


def graph(inputs: list[PortSpec], outputs: list[PortSpec]) -> EntryGraph:
    return EntryGraph("prefill", 4, 16, cast(Any, None), inputs, outputs)


def draft(*types: DType) -> Draft:
    """Reads input x once per type."""
    found = Draft("prefill", 4, 16)
    buffer = Buffer("prefill.in.x", "ddr", 16, Role.INPUT)
    for i, dtype in enumerate(types):
        local = view(found.local(f"b{i}", 16), (4,), dtype)
        found.add("dma.in", CopyOp(), [view(buffer, (4,), dtype)], [local], ("n", "copy", (i,), "load"))
    return found


def test_ports_have_the_type_of_the_tasks_and_leave_out_step_and_states() -> None:
    inputs = [
        PortSpec("x", (1, 4), INT64),
        PortSpec("n_past", (), INT64),
        PortSpec("n_new", (), INT64),
        PortSpec("state.k0", (1, 2, 16, 8), FLOAT),
        PortSpec("unused", (2,), FLOAT),
    ]
    outputs = [PortSpec("hidden", (1, 4, 16), FLOAT), PortSpec("next.k0", (1, 2, 4, 8), FLOAT)]
    found = entry_ports(graph(inputs, outputs), draft(DType.I32).program())
    assert (found.name, found.rows, found.capacity) == ("prefill", 4, 16)
    assert found.inputs == (Port("x", DType.I32, (1, 4), "i64"), Port("unused", DType.F32, (2,), "f32"))
    assert found.outputs == (Port("hidden", DType.F32, (1, 4, 16), "f32"),)


@pytest.mark.parametrize(
    ("spec", "types", "message"),
    [
        (PortSpec("x", (4,), INT64), (DType.I32, DType.F32),
         "entry prefill, buffer prefill.in.x: tasks use it as i32 and f32"),
        (PortSpec("x", (4,), STRING), (DType.I32,),
         "entry prefill, port x: its element type is none of f32, u8, i8, u16, i16, i32, i64, bool, f16, f64, u32, "
         "u64, bf16, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, u4, i4, f4e2m1, f8e8m0, u2, i2"),
    ],
)  # fmt: skip
def test_ports_that_cannot_be(spec: PortSpec, types: tuple[DType, ...], message: str) -> None:
    with pytest.raises(EmitError) as caught:
        entry_ports(graph([spec], []), draft(*types).program())
    assert str(caught.value) == message


def test_the_object() -> None:
    small = model()
    llm = LlmInfo(24, 16, 4, 16, (16,), "input_ids", "hidden", "logits")
    found = build_metadata([], small.states, precision="f16", target="npu40xx", llm=llm, stop_ids=(2, 3), start_id=1)
    assert found["llm"] == {
        "vocab": 24, "hidden": 16, "chunk": 4, "max_prompt_len": 16, "capacities": [16], "eos": [2, 3], "bos": 1,
        "ids": "input_ids", "hidden_value": "hidden", "logits": "logits",
    }  # fmt: skip
    assert found["states"][0] == {
        "id": "k0", "dtype": "f16", "shape": [1, 2, 19, 8], "kind": "append", "row_axis": 2, "why": "rows are added",
        "initial": None,
    }  # fmt: skip
    assert (found["format"], found["precision"], found["target"], found["nodes"]) == (1, "f16", "npu40xx", [])


def test_the_runtime_reads_it() -> None:
    small = model()
    found = parse_metadata(json.dumps(small.metadata | {"llm": None}).encode())
    assert [entry.name for entry in found.entries] == ["prefill", "generate.16"]
    assert found.entries[0].inputs[0].nbytes == 16
    assert [state.nbytes for state in found.states] == [608, 608]


def test_a_bound_stands_with_its_entry() -> None:
    rows = [EntryPorts("a", 0, 0, (), ()), EntryPorts("b", 0, 0, (), ())]
    bounds = [{"n_past": 0}, {"n_past": 5}]
    found = build_metadata(rows, [], precision="f16", target="npu40xx", bounds=bounds)["entries"]
    assert [row["bound"] for row in found] == bounds
    assert "bound" not in build_metadata(rows, [], precision="f16", target="npu40xx")["entries"][0]
