"""Target files: the numbers of the two machines that come along, and a named line for every mistake."""

from importlib.resources import files

import pytest

from npurt.errors import TargetError
from npurt.target import load_target, parse_target, scaled, target_names

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
    mte2 = target.engines["mte2"]
    assert (mte2.outstanding, mte2.gather_rows) == (16, 2)
    assert (cube.code, target.engines["vector"].code, target.engines["vector"].function_code) == (32768, 16384, 8192)
    assert (target.memories["l1"].banks, target.memories["ub"].bank_groups, target.memories["ub"].banks) == (2, 8, 16)
    assert target.operands["matmul"].homes == {"a": ("l0a", "zz"), "b": ("l0b", "zn"), "c": ("l0c", "nz")}
    assert (target.operands["matmul"].accumulator, target.operands["matmul"].accumulates) == ("l0c", "f32")
    assert target.routes["ddr", "l1"].layouts == ("nd->nd", "nd->nz")
    # 5 TB/s of the second-level cache are 94.7 B a cycle and core
    assert target.pools["l2"].rate / cube.clock == pytest.approx(94.7, abs=0.01)
    assert target.sync.latency == pytest.approx(20 / 1650e6)


def test_generations_before_and_after():
    older, newer = load_target("npu37xx"), load_target("npu50xx")
    # 10.6 and 47.9 TOPS of int8
    for target, tops in ((older, 10.65e12), (newer, 47.9e12)):
        dpu = target.engines["dpu"]
        assert 2 * dpu.macs_per_cycle["i8"] * dpu.clock * target.tiles == pytest.approx(tops, rel=0.01)
    assert older.routes["ddr", "cmx"].latency == pytest.approx(956e-9)
    assert older.pools["ddr"].rate == older.routes["ddr", "cmx"].rate == 27e9  # both ports together
    assert newer.barriers.per_tile == 16 and newer.figures["barriers.per_tile"].assumed


def test_every_number_has_a_source():
    for name in target_names():
        target = load_target(name)
        for figure in target.figures.values():
            letter = figure.source.partition(":")[0]
            assert figure.assumed or letter in target.sources, figure
            assert figure.source != "assumed", f"{name}: {figure.key} does not say why"


def test_a_number_without_a_source_is_assumed():
    target = parse_target("t.toml", TEXT.replace('launch = ["2.5 us", "V:', 'launch = "2.5 us" #', 1))
    assert target.figures["engines.shave.launch"].assumed
    assert not load_target().figures["engines.shave.launch"].assumed
    assert target.assumed(["engines.shave"])[0] == "engines.shave.launch"
    assert target.assumed(["engines.sha"]) == ()


def test_scaled():
    target = load_target()
    assert scaled(target, "routes.ddr->cmx.rate", 2).routes["ddr", "cmx"].rate == 136e9
    assert scaled(target, "engines.dma.in.fill_rate", 2).engines["dma.in"].fill_rate == 128 * 971e6
    assert scaled(target, "engines.shave.cycles.load", 2).engines["shave"].cycles["load"] == 1.5
    assert scaled(target, "engines.dpu.macs_per_cycle.f16", 2).engines["dpu"].macs_per_cycle["f16"] == 2048
    assert scaled(target, "pools.ddr.rate", 0.5).pools["ddr"].rate == 68e9
    assert scaled(load_target("ascend950"), "sync.latency", 3).sync.latency == pytest.approx(60 / 1650e6)
    for key in ("memories.cmx.size", "engines.dpu.lunch", "sync.clock", "engines.dma.in.max_transfer"):
        with pytest.raises(TargetError, match=f"^npu40xx: no number '{key}' that costs time$"):
            scaled(target, key, 2)


MISTAKES = [
    ("tiles = [6,", "tiles = [0,", "t.toml:LINE: tiles: 0 is no positive whole number"),
    ("tiles = [6,", "tile = [6,",
     "t.toml:LINE: tile: unknown key; known are name, description, tiles"),
    ('size = ["1439 KiB", ', 'sise = ["1439 KiB", ',
     "t.toml:LINE: [memories.cmx] sise: unknown key; known are size, align, per, on_chip, banks, bank_groups, "
     "bank_row, bank_rate"),
    ('size = ["1439 KiB", ', '# ', "t.toml:19: [memories.cmx] the key 'size' is missing"),
    ('size = ["1439 KiB", ', 'size = ["1439 ns", ',
     "t.toml:LINE: [memories.cmx] size: '1439 ns' has the unit 'ns'; one of B, KiB, MiB, GiB is due"),
    ('size = ["1439 KiB", ', 'size = [1439, ',
     't.toml:LINE: [memories.cmx] size: 1439 is no quantity; write a number and a unit, as "1 B"'),
    ('per_tile = [16, "C:', 'per_tile = [16, 1, "C:',
     't.toml:LINE: [barriers] per_tile: a number with its source is due, as [1, "where from"]'),
    ('launch = ["2.5 us"', 'launch = ["-2.5 us"', "t.toml:LINE: [engines.shave] launch: '-2.5 us' is negative"),
    ('rate = ["34 GB/s"', 'rate = ["-34 GB/s"', "t.toml:LINE: [routes.ddr->ddr] rate: '-34 GB/s' is negative"),
    ('rate = ["34 GB/s"', 'rate = ["0 GB/s"', "t.toml:LINE: [routes.ddr->ddr] rate: '0 GB/s' is zero"),
    ('rate = ["34 GB/s"', 'rate = ["34 MB/s"',
     "t.toml:LINE: [routes.ddr->ddr] rate: '34 MB/s' has the unit 'MB/s'; one of GB/s, TB/s, B/cycle is due"),
    ('writes = ["cmx", "ddr"]', 'writes = ["cmx", "dram"]',
     "t.toml:LINE: [engines.dma.in] writes: memory 'dram' is not defined; there are ddr, cmx"),
    ('[routes."cmx->ddr"]', '[routes."cmx-ddr"]',
     't.toml:LINE: [routes.cmx-ddr] a route is named "source->destination"'),
    ('[routes."cmx->ddr"]', '[routes."cmx->dram"]',
     "t.toml:LINE: [routes.cmx->dram] memory 'dram' is not defined; there are ddr, cmx"),
    ('[routes."cmx->cmx"]\nengine = "dma.out"', '[routes."cmx->cmx"]\nengine = "dma.in"',
     "t.toml:LINE+1: [routes.cmx->cmx] engine: dma.in does not read cmx and write cmx"),
    ('reads = ["cmx"]\nwrites = ["ddr", "cmx"]', 'reads = ["cmx", "ddr"]\nwrites = ["ddr", "cmx"]',
     't.toml:35: [engines.dma.out] the route [routes."ddr->ddr"] with engine = "dma.out" is missing'),
    ('pool = "ddr"', 'pool = "dram"', "t.toml:LINE: [routes.ddr->cmx] pool: pool 'dram' is not defined; there are ddr"),
    ("macs_per_cycle.i8 =", "macs_per_cycle.i9 =",
     "t.toml:LINE: [engines.dpu] macs_per_cycle.i9: unknown; known are f32, f16, bf16, i32, i8, u8, bool, i64, "
     "i4, u4, e4m3, e5m2, e2m1, e8m0, u2"),
    ("cycles.reduce =", "# ", "t.toml:60: [engines.shave] the key 'cycles.reduce' is missing"),
    ("cycles.reduce = [1.0,", "cycles.reduce = [-1.0,",
     "t.toml:LINE: [engines.shave] cycles.reduce: -1.0 is no number of 0 or more"),
    ('a = "cmx:nd", b', 'a = "cmx", b',
     "t.toml:LINE: [operands.matmul] homes: operand a: 'cmx' is no home; write \"memory:layout\""),
    ('a = "cmx:nd", b', 'a = "l1:nd", b',
     "t.toml:LINE: [operands.matmul] homes: memory 'l1' is not defined; there are ddr, cmx"),
    ('accumulates = "f32"', "",
     "t.toml:109: [operands.matmul] 'accumulator' and 'accumulates' go together"),
    ('kind = "vector"', 'kind = "scalar"', 't.toml:1: one engine of kind = "vector" is due'),
    ("per_tile = [16,", "per_tile = [160,", "t.toml:LINE: [barriers] per_tile: 160 of 96 barriers in all"),
    ("on_chip = true", "on_chip = 1", "t.toml:LINE: [memories.cmx] on_chip: 1 is neither true nor false"),
    ("[sync]\n", "[ink]\n", "t.toml:LINE: ink: unknown key; known are name, description, tiles"),
    ("[barriers]", "[barriers",
     "t.toml: Expected ']' at the end of a table declaration (at line LINE, column 10)"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"), MISTAKES, ids=[f"{at}-{new}" for at, (_, new, _) in enumerate(MISTAKES)]
)
def test_mistakes_name_file_and_line(old: str, new: str, message: str):
    """LINE: where the change begins."""
    line = TEXT[: TEXT.index(old)].count("\n") + 1
    with pytest.raises(TargetError) as caught:
        parse_target("t.toml", TEXT.replace(old, new, 1))
    assert str(caught.value) == message.replace("LINE+1", str(line + 1)).replace("LINE", str(line))


def test_unknown_names_and_paths(tmp_path):
    with pytest.raises(
        TargetError,
        match=r"no target 'npu99': there are ascend950, npu37xx, npu40xx, npu50xx; or give the path of a \.toml file",
    ):
        load_target("npu99")
    with pytest.raises(TargetError, match=r"x\.toml: No such file or directory"):
        load_target(tmp_path / "x.toml")
    path = tmp_path / "mine.toml"
    path.write_text(TEXT.replace("npu40xx", "mine"))
    assert load_target(path).name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('rate = ["5 TB/s"', 'rate = ["94 B/cycle"',
         "[pools.l2] rate: '94 B/cycle' has the unit 'B/cycle'; one of GB/s, TB/s is due"),
        ('bank_rate = ["422.4 GB/s"', 'bank_rate = ["256 B/cycle"',
         "[memories.l1] bank_rate: '256 B/cycle' has the unit 'B/cycle'; one of GB/s, TB/s is due"),
        ('instruction_latency = ["6.5 cycles"', 'instruction_latency = ["6.5 ticks"',
         "[engines.vector] instruction_latency: '6.5 ticks' has the unit 'ticks'; one of ns, us, ms, cycles is due"),
        ("destinations = [2,", "destinations = [0,", "[engines.fix] destinations: 0 is no positive whole number"),
    ],
)  # fmt: skip
def test_what_has_no_clock_counts_no_cycles(old: str, new: str, message: str):
    text = files("npurt.target").joinpath("ascend950.toml").read_text(encoding="utf-8")
    line = text[: text.index(old)].count("\n") + 1
    with pytest.raises(TargetError) as caught:
        parse_target("t.toml", text.replace(old, new, 1))
    assert str(caught.value) == f"t.toml:{line}: {message}"
