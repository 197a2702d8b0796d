"""Target files: the numbers of the two machines that come along, and a named line for every mistake."""

import re
from importlib.resources import files

import pytest

from npurt.errors import TargetError
from npurt.target import load_target, parse_target, target_names

TEXT = files("npurt.target").joinpath("npu40xx.toml").read_text()


def test_npu40xx():
    target = load_target()
    assert target.name == "npu40xx"
    assert target.on_chip == {"cmx": 1473536}
    assert target.memories["cmx"].align == 64
    assert target.queues == {"dma.in": "dma.in", "dma.out": "dma.out", "dpu": "dpu", "shave": "shave"}
    assert (target.barriers.total, target.barriers.per_tile, target.barriers.most_each, target.barriers.slot_sum) == (
        96,
        16,
        64,
        64,
    )
    assert target.engines["dma.in"].max_bytes == 2**24 - 1
    assert target.engines["shave"].launch == pytest.approx(2.5e-6)
    assert target.routes["ddr", "cmx"].latency == pytest.approx(300e-9)
    assert target.routes["cmx", "cmx"].rate == pytest.approx(64 * 971e6)
    assert target.routes["cmx", "cmx"].latency == pytest.approx(32 / 971e6)
    # 45 TOPS of int8: two operations a MAC, six tiles
    dpu = target.engines["dpu"]
    assert 2 * dpu.macs_per_cycle["i8"] * dpu.clock * target.tiles == pytest.approx(45.5e12, rel=0.01)


def test_ascend950():
    target = load_target("ascend950")
    cube = target.engines["cube"]
    # 432.5 TFLOPS of bf16
    assert 2 * cube.macs_per_cycle["bf16"] * cube.clock * target.tiles == pytest.approx(432.5e12, rel=0.001)
    assert target.on_chip == {"l1": 524288, "l0a": 65536, "l0b": 65536, "l0c": 262144, "ub": 253952}
    assert target.engines["mte1"].writes == ("l0a", "l0b")


def test_every_number_has_a_source():
    for name in target_names():
        for line in files("npurt.target").joinpath(f"{name}.toml").read_text().splitlines():
            if re.search(r"= (\d|\"\d|\{)", line.partition("#")[0]):
                assert re.search(r"# .*([A-Z]\+?\b|assumed)", line), f"{name}.toml: {line}"


MISTAKES = [
    ("tiles = 6", "tiles = 0", "t.toml:9: tiles: 0 is no positive whole number"),
    ("tiles = 6", "tile = 6", "t.toml:9: tile: unknown key; known are name, description, tiles"),
    ('size = "1439 KiB"', 'sise = "1439 KiB"',
     "t.toml:18: [memories.cmx] sise: unknown key; known are size, align, per, on_chip"),
    ('size = "1439 KiB"', "# no size", "t.toml:17: [memories.cmx] the key 'size' is missing"),
    ('size = "1439 KiB"', 'size = "1439 ns"',
     "t.toml:18: [memories.cmx] size: '1439 ns' has the unit 'ns'; one of B, KiB, MiB, GiB is due"),
    ('size = "1439 KiB"', "size = 1439",
     't.toml:18: [memories.cmx] size: 1439 is no quantity; write a number and a unit, as "1 B"'),
    ('launch = "2.5 us"', 'launch = "-2.5 us"', "t.toml:55: [engines.shave] launch: '-2.5 us' is negative"),
    ('writes = ["cmx", "ddr"]', 'writes = ["cmx", "dram"]',
     "t.toml:28: [engines.dma.in] writes: memory 'dram' is not defined; there are ddr, cmx"),
    ('[routes."cmx->ddr"]', '[routes."cmx-ddr"]',
     't.toml:68: [routes.cmx-ddr] a route is named "source->destination"'),
    ("per_tile = 16", "per_tile = 160", "t.toml:80: [barriers] per_tile: 160 of 96 barriers in all"),
    ("on_chip = true", "on_chip = 1", "t.toml:21: [memories.cmx] on_chip: 1 is neither true nor false"),
    ("[barriers]", "[barriers", "t.toml: Expected ']' at the end of a table declaration (at line 78, column 10)"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), MISTAKES, ids=[new for _, new, _ in MISTAKES])
def test_mistakes_name_file_and_line(old: str, new: str, message: str):
    assert old in TEXT
    with pytest.raises(TargetError) as caught:
        parse_target("t.toml", TEXT.replace(old, new, 1))
    assert str(caught.value) == message


def test_unknown_names_and_paths(tmp_path):
    with pytest.raises(
        TargetError, match=r"no target 'npu99': there are ascend950, npu40xx; or give the path of a \.toml file"
    ):
        load_target("npu99")
    with pytest.raises(TargetError, match=r"x\.toml: No such file or directory"):
        load_target(tmp_path / "x.toml")
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace("npu40xx", "mine"))
    assert load_target(path).name == "mine"
