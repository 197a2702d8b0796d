"""Differences between programs, in exact words."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from npuc.emit import write_blob
from npuc.report import ThresholdError, diff, disasm
from npuc.report.thresholds import parse_thresholds
from npuc.tasks.graph import CopyOp
from npurt.errors import BlobError
from tests.unit.emit.programs import Draft, Model, const, model, one_entry, view


def blob(folder: Path, name: str, small: Model) -> Path:
    path = folder / name
    write_blob(*small.arguments(), path)
    return path


@pytest.fixture
def a(tmp_path: Path) -> Path:
    return blob(tmp_path, "a.blob", model())


def test_equal_programs(a: Path, tmp_path: Path) -> None:
    result = diff(a, blob(tmp_path, "b.blob", model()))
    assert (result.lines, result.different, result.exit_code, result.text) == ((), False, 0, "no difference\n")


def test_another_tile_size(a: Path, tmp_path: Path) -> None:
    result = diff(a, blob(tmp_path, "b.blob", model(tile=6)))
    assert result.exit_code == 1
    assert (
        result.text
        == """\
entry generate.16
  resized /layers.0/proj and 1 more matmul load.w [0,0..2]
    - dma.in copy const#0 at 256*c1 f16[8,16] -> cmx f16[8,16]
    + dma.in copy const#0 at 192*c1 f16[6,16] -> cmx f16[6,16]
  resized /layers.0/proj and 1 more matmul load.table [0,0..2]
    - dma.in copy const#1 at 64*c1 f32[8,2] -> cmx f32[8,2]
    + dma.in copy const#1 at 48*c1 f32[6,2] -> cmx f32[6,2]
  resized /layers.0/proj and 1 more matmul mma [0,0..2]
    - dpu mma[1,8,16] cmx f16(32) x cmx f16(32) -> cmx f16(48) scale 0.5 table cmx
    + dpu mma[1,6,16] cmx f16(32) x cmx f16(32) -> cmx f16(48) scale 0.5 table cmx
  added /layers.0/proj and 1 more matmul load.w [0,3]
    + dma.in copy const#0 at 192*c1 f16[6,16] -> cmx f16[6,16]
  added /layers.0/proj and 1 more matmul load.table [0,3]
    + dma.in copy const#1 at 48*c1 f32[6,2] -> cmx f32[6,2]
  added /layers.0/proj and 1 more matmul mma [0,3]
    + dpu mma[1,6,16] cmx f16(32) x cmx f16(32) -> cmx f16(48) scale 0.5 table cmx
  cmx 3392 -> 3520 (+3.8%)
  barriers 29 -> 35 (+20.7%)
  tasks 30 -> 36 (+20.0%)
"""
    )


def test_texts_stand_for_blobs_on_either_side(a: Path, tmp_path: Path) -> None:
    b = blob(tmp_path, "b.blob", model(tile=6))
    texts = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, source in zip(texts, (a, b), strict=True):
        path.write_text(disasm(source), encoding="utf-8")
    expected = diff(a, b)
    assert diff(texts[0], b) == diff(a, texts[1]) == diff(texts[0], texts[1]) == expected
    assert not diff(a, texts[0]).different


def test_removed_and_changed_tasks(tmp_path: Path) -> None:
    def copies(offset: int, count: int) -> Model:
        draft = Draft("main", 0, 0)
        source = const("w", (64,))
        for i in range(count):
            local = draft.local(f"b{i}", 16)
            region = view(source, (8,), offset=16 * i + offset)
            draft.add("dma.in", CopyOp(), [region], [view(local, (8,))], ("n", "copy", (i,), "load"))
        return one_entry(draft)

    result = diff(blob(tmp_path, "a", copies(0, 4)), blob(tmp_path, "b", copies(32, 2)))
    assert result.lines == (
        "entry main",
        "  changed n copy load [0..1]",
        "    - dma.in copy const#0 at 16*c0 f16[8] -> cmx f16[8]",
        "    + dma.in copy const#0 at 32+16*c0 f16[8] -> cmx f16[8]",
        "  removed n copy load [2..3]",
        "    - dma.in copy const#0 at 16*c0 f16[8] -> cmx f16[8]",
        "  cmx 256 -> 128 (-50.0%)",
        "  ddr 64 -> 32 (-50.0%)",
        "  barriers 3 -> 1 (-66.7%)",
        "  tasks 4 -> 2 (-50.0%)",
    )


def test_other_weights_in_the_same_program(tmp_path: Path) -> None:
    def copy(seed: int) -> Model:
        draft = Draft("main", 0, 0)
        local = draft.local("b", 16)
        draft.add(
            "dma.in", CopyOp(), [view(const("w", (8,), seed=seed), (8,))], [view(local, (8,))], ("n", "copy", (), "")
        )
        return one_entry(draft)

    def digest(seed: int) -> str:
        array = np.random.default_rng(seed).standard_normal((8,)).astype("<f2")
        return hashlib.sha256(array.tobytes()).hexdigest()[:12]

    result = diff(blob(tmp_path, "a", copy(0)), blob(tmp_path, "b", copy(1)))
    was, now = digest(0), digest(1)
    assert result.lines == (
        f"- weights 16 B sha256 {was}",
        f"+ weights 16 B sha256 {now}",
        "entry main",
        "  rebound n",
        f"    - const#0:16B:{was}",
        f"    + const#0:16B:{now}",
    )


def test_entries_and_states_that_come_and_go(a: Path, tmp_path: Path) -> None:
    small = model()
    small.programs.pop()
    small.metadata["entries"].pop()
    result = diff(a, blob(tmp_path, "b.blob", small), ["tasks>50%"])
    assert "removed entry generate.16" in result.lines
    assert "- port generate.16.in.input_ids i32[1,1], i64 in the graph" in result.lines
    assert result.exceeded == ("entry generate.16 was removed",) and result.exit_code == 1


def test_thresholds_decide_where_they_are_given(a: Path, tmp_path: Path) -> None:
    b = blob(tmp_path, "b.blob", model(tile=6))
    within = diff(a, b, ["tasks>20%", "cmx>128,ddr>0"])
    assert within.different and within.exceeded == () and within.exit_code == 0
    beyond = diff(a, b, ["tasks>19.9%,cmx>127"])
    assert beyond.exceeded == (
        "entry generate.16: tasks 30 -> 36 (+20.0%) exceeds tasks>19.9%",
        "entry generate.16: cmx 3392 -> 3520 (+3.8%) exceeds cmx>127",
    )
    assert beyond.text.endswith("\nFAIL entry generate.16: cmx 3392 -> 3520 (+3.8%) exceeds cmx>127\n")
    assert beyond.exit_code == 1
    assert diff(b, a, ["tasks>0"]).exit_code == 0  # less is no growth


@pytest.mark.parametrize("text", ["tasks", "tasks<3", "cycles>1%", "tasks>-1"])
def test_thresholds_that_cannot_be_read(text: str) -> None:
    with pytest.raises(ThresholdError) as caught:
        parse_thresholds([text])
    assert str(caught.value) == (
        f"--fail-on {text!r}: write METRIC>NUMBER or METRIC>NUMBER%, METRIC one of cmx, ddr, scratch, barriers, tasks"
    )


def test_files_that_are_neither(a: Path, tmp_path: Path) -> None:
    other = tmp_path / "picture"
    other.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BlobError) as caught:
        diff(a, other)
    assert str(caught.value) == f"{other}: neither a blob nor the text of `npuc disasm`"
    with pytest.raises(FileNotFoundError):
        diff(tmp_path / "none", a)
