"""The text of a blob: compared with a file, stable under small changes, and readable back."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from npuc.emit import write_blob
from npuc.report import disasm
from npuc.report.listing import Entry, Group, Listing, Node, build_listing
from npuc.report.listing_text import listing_lines, parse_listing, token
from npuc.report.reader import Blob
from npurt.errors import BlobError
from tests.golden.update import assert_golden
from tests.unit.emit.programs import Model, model


def text(folder: Path, small: Model, full: bool = False) -> str:
    path = folder / "x.blob"
    write_blob(*small.arguments(), path)
    return disasm(path, full)


def changed(a: str, b: str) -> list[str]:
    return [line for line in difflib.ndiff(a.splitlines(), b.splitlines()) if line[0] in "+-"]


@pytest.mark.parametrize("full", [False, True], ids=["short", "full"])
def test_the_text_is_the_one_in_the_repository(tmp_path: Path, full: bool) -> None:
    assert_golden("synthetic.full.txt" if full else "synthetic.txt", text(tmp_path, model(), full))


def test_one_tile_size_changes_few_lines_however_many_layers_there_are(tmp_path: Path) -> None:
    few = changed(text(tmp_path, model()), text(tmp_path, model(tile=6)))
    many = changed(text(tmp_path, model(layers=20)), text(tmp_path, model(tile=6, layers=20)))
    assert len(few) == len(many) < 20


def test_a_tail_tile_is_its_own_line(tmp_path: Path) -> None:
    lines = text(tmp_path, model(tile=10)).splitlines()
    assert "    dma.in matmul load.w [0,0..1]: copy const#0 at 320*c1 f16[10,16] -> cmx f16[10,16]" in lines
    assert "    dma.in matmul load.w [0,2]: copy const#0 at 640 f16[4,16] -> cmx f16[4,16]" in lines


def test_a_new_layer_adds_lines_and_changes_only_totals(tmp_path: Path) -> None:
    found = changed(text(tmp_path, model(layers=2)), text(tmp_path, model(layers=3)))
    removed = [line for line in found if line[0] == "-"]
    # weights; then per entry tasks, barriers, memory, DDR bytes
    assert [line.split()[1] for line in removed] == ["weights", *["tasks", "barriers", "memory:", "ddr:"] * 2]


def test_the_text_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "x.blob"
    write_blob(*model(tile=10).arguments(), path)
    listing = build_listing(Blob(path))
    assert parse_listing("\n".join(listing_lines(listing)), "x") == listing


def test_names_that_are_not_words() -> None:
    assert [token(name) for name in ("/a/b", "", "a b", 'a"b')] == ["/a/b", '""', '"a b"', '"a\\"b"']


def test_a_full_text_is_no_listing(tmp_path: Path) -> None:
    with pytest.raises(BlobError) as caught:
        parse_listing(text(tmp_path, model(), full=True), "full.txt")
    assert str(caught.value) == "full.txt: the text of `npuc disasm --full` cannot be compared, leave out --full"


def test_a_line_that_does_not_belong(tmp_path: Path) -> None:
    lines = text(tmp_path, model()).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("    dma.in"))
    lines[at] = "<<<<<<< HEAD"
    with pytest.raises(BlobError) as caught:
        parse_listing("\n".join(lines), "a.txt")
    assert str(caught.value) == "a.txt: not a line of a listing: '<<<<<<< HEAD'"


def test_any_text_is_no_listing() -> None:
    with pytest.raises(BlobError) as caught:
        parse_listing("hello\n", "a.txt")
    assert str(caught.value) == "a.txt: neither a blob nor the text of `npuc disasm`"


def test_a_reference_to_a_node_that_is_not_there(tmp_path: Path) -> None:
    found = text(tmp_path, model()).replace("= /layers.0/proj", "= /layers.7/proj")
    with pytest.raises(BlobError) as caught:
        parse_listing(found, "a.txt")
    assert str(caught.value) == ("a.txt: node /layers.1/proj is equal to /layers.7/proj, which does not come before it")


def test_a_node_refers_to_its_own_role_in_an_earlier_layer() -> None:
    group = Group("dpu", "matmul", "mma", "[0]", "mma[1,8,8]")
    names = ["layers.0/q", "layers.0/k", "layers.1/q", "layers.1/k"]
    nodes = tuple(Node(name, (), (group,)) for name in names)
    totals = dict.fromkeys(("tasks", "dma.in", "dma.out", "dpu", "shave", "barriers"), 0)
    totals |= dict.fromkeys(("cmx_peak", "scratch", "ddr_read", "ddr_written"), 0)
    listing = Listing(("npuc blob 1.0",), (Entry("main", 0, 0, totals, nodes),), ())
    lines = [line for line in listing_lines(listing) if line.startswith("  node")]
    assert lines == [
        "  node layers.0/q",
        "  node layers.0/k",
        "  node layers.1/q  = layers.0/q",
        "  node layers.1/k  = layers.0/k",
    ]
    assert parse_listing("\n".join(listing_lines(listing)), "x") == listing
