"""The published table of sparse attention on ascend950, and the same for other machines."""

import json

import pytest

from npuc.cli import main
from npuc.report.roofline import roofline, roofline_text
from npurt.errors import TargetError

# query heads, selected rows: cycles of the cube, cycles of the memory (rounded), as published
PUBLISHED = {
    (16, 512): (2048, 5883), (16, 1024): (4096, 11419), (32, 512): (4096, 6229), (32, 1024): (8192, 11765),
    (64, 512): (8192, 6921), (64, 1024): (16384, 12457), (128, 512): (16384, 8305), (128, 1024): (32768, 13841),
}  # fmt: skip


def test_the_sixteen_published_values(capsys: pytest.CaptureFixture[str]):
    assert main(["roofline"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[3:11]]
    printed = {(int(heads), int(topk)): (int(matrix), int(memory)) for heads, topk, matrix, memory, _ in rows}
    assert printed == PUBLISHED
    assert [row[4] for row in rows] == ["memory"] * 4 + ["matrix"] * 4


def test_unrounded_memory_cycles():
    found = roofline("ascend950", [64], [512, 1024], 512, "bf16")
    assert [row["memory"] for row in found["rows"]] == pytest.approx([6920.60, 12457.08], abs=0.005)
    assert found["machine"]["bytes_per_cycle"] == pytest.approx(94.697, abs=0.001)
    assert found["assumed"] == []


def test_another_machine():
    found = roofline("npu40xx", [9], [512], 64, "f16")
    (row,) = found["rows"]
    assert row["matrix"] == 2 * 9 * 512 * 64 / 1024
    assert row["memory"] == pytest.approx((512 * 64 + 2 * 9 * 64) * 2 / (68e9 / 1850e6))
    assert row["bound"] == "memory"


def test_a_figure_that_rests_on_an_assumption_says_so():
    found = roofline("npu40xx", [9], [512], 64, "f32")
    assert found["assumed"] == ["engines.dpu.macs_per_cycle.f32"]
    assert roofline_text(found).endswith("\nrests on assumed numbers: engines.dpu.macs_per_cycle.f32\n")


def test_json(capsys: pytest.CaptureFixture[str]):
    assert main(["roofline", "--heads", "64", "--topk", "512,640", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["heads"], row["topk"]) for row in found["rows"]] == [(64, 512), (64, 640)]


def test_a_type_that_is_not_multiplied(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(TargetError, match=r"^npu40xx multiplies no f8; it takes i8, u8, f16, bf16, f32$"):
        roofline("npu40xx", [1], [1], 64, "f8")
    assert main(["roofline", "--heads", "0"]) == 2
    assert "'0' is not a list of numbers above 0" in capsys.readouterr().err
