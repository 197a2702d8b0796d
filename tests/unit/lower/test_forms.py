"""Forms of attention are chosen by the time of their tasks on the target, forced where asked, and all reported."""

from __future__ import annotations

import math

import pytest

from npuc.lower.context import KernelCall
from npuc.lower.forms import FormChooser, form_lines
from npuc.lower.library import Library
from npuc.lower.views import contiguous_strides
from npuc.tasks import Buffer, Region
from npuc.tile import TraceCache
from npurt.abi.dtypes import DType
from npurt.target import load_target

TARGET = load_target("npu40xx")
FREE = 900 << 10


def region(name: str, shape: tuple[int, ...], memory: str = "cmx", dtype: DType = DType.F16) -> Region:
    buffer = Buffer(name, memory, math.prod(shape) * dtype.nbytes)
    return Region(buffer, 0, dtype, shape, contiguous_strides(shape, dtype.nbytes))


def attention_call(rows: int, past: int) -> KernelCall:
    new, cache = (3, rows, 64), (3, past, 64)
    arrays = (
        region("q", (9, rows, 64)), region("k", new), region("v", new), region("ck", cache, "ddr"),
        region("cv", cache, "ddr"), region("out", (9, rows, 64)), None, None, region("ones", (1, past + rows), "ddr"),
        region("slots", (past, 2), dtype=DType.F32),
    )  # fmt: skip
    return KernelCall("attention", arrays, {"scale": 0.125, "softcap": 0.0, "window": 0}, "node")


def test_a_long_past_of_many_rows_is_flash_and_all_costs_are_told() -> None:
    choice = FormChooser(Library(), TARGET).choose(attention_call(64, 512), TraceCache(), FREE)
    assert choice is not None and choice.kernel == choice.trace.kernel == "attention_flash"
    costs = {cost.form: cost.seconds for cost in choice.forms}
    assert choice.forms[0].form == "flash" and choice.forms[0].sizes == choice.params
    assert set(costs) == {"decomposed", "flash", "incremental"} and costs["incremental"] is None
    assert costs["flash"] is not None and costs["decomposed"] is not None and costs["flash"] < costs["decomposed"]


def test_a_decode_row_is_not_flash() -> None:
    choice = FormChooser(Library(), TARGET).choose(attention_call(1, 512), TraceCache(), FREE)
    assert choice is not None and choice.kernel in ("attention", "attention_incremental")


@pytest.mark.parametrize("form,kernel", [
    ("decomposed", "attention"), ("flash", "attention_flash"), ("incremental", "attention_incremental"),
])  # fmt: skip
def test_a_form_is_forced_where_it_can_be(form: str, kernel: str) -> None:
    choice = FormChooser(Library(), TARGET, form).choose(attention_call(1, 128), TraceCache(), FREE)
    assert choice is not None and choice.kernel == kernel and [cost.form for cost in choice.forms] == [form]


def test_a_forced_form_that_takes_no_such_rows_gives_way_and_says_so() -> None:
    call = attention_call(16, 64)
    choice = FormChooser(Library(), TARGET, "incremental").choose(call, TraceCache(), FREE)
    assert choice is not None and choice.kernel != "attention_incremental"
    (line,) = form_lines("prefill", [(call, choice)] * 2)
    assert line.startswith("prefill: attention x 2: ") and "; incremental does not fit" in line


def test_other_calls_have_no_forms() -> None:
    call = KernelCall("copy", (region("x", (4, 4)), region("out", (4, 4))), {}, "node")
    assert FormChooser(Library(), TARGET).choose(call, TraceCache(), FREE) is None
