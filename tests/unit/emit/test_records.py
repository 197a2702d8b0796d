"""The records of a blob say what the tasks said."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from npuc.emit import write_blob
from npuc.report.reader import Blob
from npuc.tasks.graph import CopyOp, GatherOp, MmaOp
from npurt.abi import blob
from npurt.abi.dtypes import DType
from npurt.abi.records import NO_BASE, NO_NODE, BaseKind, DmaOp, DpuFlag, Predicate, Queue
from tests.unit.emit.programs import HEADS, SLOTS, WIDTH, Draft, Model, const, model, one_entry, view


@pytest.fixture(scope="module")
def small() -> Model:
    return model()


@pytest.fixture(scope="module")
def image(small: Model, tmp_path_factory: pytest.TempPathFactory) -> Blob:
    path = tmp_path_factory.mktemp("records") / "small.blob"
    write_blob(*small.arguments(), path)
    return Blob(path)


def row_of(image: Blob, table: str, entry: int, stage: str, coord: list[int]) -> np.void:
    """The record of a task of an entry, found by its origin."""
    dma, dpu, shave = (len(image.table(name)) for name in (blob.NAME_DMA, blob.NAME_DPU, blob.NAME_SHAVE))
    start = {blob.NAME_DMA: 0, blob.NAME_DPU: dma, blob.NAME_SHAVE: dma + dpu}[table]
    assert len(image.table(blob.NAME_ORIGINS)) == dma + dpu + shave
    key = table.removeprefix(".npu.")
    row = image.table(blob.NAME_ENTRIES)[entry]
    first = int(row[f"{key}_first"])
    for i in range(first, first + int(row[f"{key}_count"])):
        origin = image.table(blob.NAME_ORIGINS)[start + i]
        if image.name(int(origin["stage"])) == stage and origin["coord"][: origin["rank"]].tolist() == coord:
            record: np.void = image.table(table)[i]
            return record
    raise AssertionError(f"no task {stage}{coord}")


def test_entries_cover_the_tables_without_gaps(image: Blob) -> None:
    entries = image.table(blob.NAME_ENTRIES)
    assert [image.name(int(e["name"])) for e in entries] == ["prefill", "generate.16"]
    assert entries["rows"].tolist() == [4, 1] and entries["capacity"].tolist() == [16, 16]
    for key, name in (("dma", blob.NAME_DMA), ("dpu", blob.NAME_DPU), ("shave", blob.NAME_SHAVE),
                      ("barrier", blob.NAME_BARRIERS), ("step", blob.NAME_RELA_STEP)):  # fmt: skip
        first, count = entries[f"{key}_first"].tolist(), entries[f"{key}_count"].tolist()
        assert first == [0, count[0]] and sum(count) == len(image.table(name))
    assert entries["base_first"].tolist() == [6, 8] and entries["base_count"].tolist() == [2, 2]


def test_bases_stand_in_the_order_of_the_contract(image: Blob, small: Model) -> None:
    bases = image.table(blob.NAME_BASES)
    kinds = [BaseKind(kind) for kind in bases["kind"].tolist()]
    io = [BaseKind.INPUT, BaseKind.OUTPUT]
    assert kinds == [
        BaseKind.CMX,
        BaseKind.CONST,
        BaseKind.SCRATCH,
        BaseKind.STEP,
        BaseKind.STATE,
        BaseKind.STATE,
        *io,
        *io,
    ]
    assert [image.symbols[i].name for i in bases["symbol"].tolist()][:4] == ["cmx0", "weights", "scratch", "step"]
    assert bases["size"][0] == max(p.cmx_peak for p in small.programs)
    assert bases["size"][1] == image.section(blob.NAME_WEIGHTS).size
    assert bases["size"][4] == HEADS * SLOTS * WIDTH * 2
    assert not bases["address"].any()


def test_copy_with_shift_and_runtime_extent(image: Blob) -> None:
    row = row_of(image, blob.NAME_DMA, 0, "store.k", [0])
    assert (row["op"], row["queue"], row["row_dim"]) == (DmaOp.COPY, Queue.DMA_OUT, 2)
    assert row["size"].tolist() == [1, HEADS, 4, WIDTH]
    assert row["dst_stride"].tolist() == [0, SLOTS * WIDTH * 2, WIDTH * 2, 2]
    assert (row["src_base"], row["dst_base"], row["index_base"]) == (0, 4, NO_BASE)
    assert row["valid"] == 0  # what n_new = 0 gives


def test_conditional_load(image: Blob) -> None:
    row = row_of(image, blob.NAME_DMA, 1, "load.past", [0])
    assert (row["pred"], row["pred_value"], row["queue"]) == (Predicate.PAST_GT, 0, Queue.DMA_IN)


def test_gather(image: Blob, small: Model) -> None:
    row = row_of(image, blob.NAME_DMA, 0, "load.rows", [0])
    task = next(t for t in small.programs[0].tasks if isinstance(t.op, GatherOp))
    assert (row["op"], row["index_bound"], row["row_dim"]) == (DmaOp.GATHER, 24, 2)
    assert row["size"].tolist() == [1, 1, 4, 16] and row["src_stride"].tolist() == [0, 0, 32, 2]
    assert row["index_base"] == 0 and row["index_offset"] == small.programs[0].offsets[task.reads[1].buffer]


def test_fill(image: Blob) -> None:
    row = row_of(image, blob.NAME_DMA, 0, "fill", [])
    assert (row["op"], row["fill"], row["src_base"], row["dst_base"]) == (DmaOp.FILL, 0x3C00, NO_BASE, 2)
    assert row["node"] == NO_NODE and row["valid"] == 4


def test_matmul(image: Blob, small: Model) -> None:
    row = row_of(image, blob.NAME_DPU, 0, "mma", [0, 1])
    task = [t for t in small.programs[0].tasks if isinstance(t.op, MmaOp)][1]
    offsets = small.programs[0].offsets
    assert row["flags"] == DpuFlag.TABLE and row["scale"] == 0.5
    assert (row["batch"], row["m"], row["n"], row["k"]) == (1, 4, 8, 16)
    assert (row["a_stride"], row["b_stride"], row["c_stride"]) == (32, 32, 48)
    assert row["c_offset"] == offsets[task.writes[0].buffer] + 16
    assert row["table_base"] == 0 and row["table_offset"] == offsets[task.reads[2].buffer]
    assert image.name(int(row["node"])) == "/layers.0/proj"


def test_shave_calls_share_text_and_pass_scalars_and_steps(image: Blob) -> None:
    calls, args = image.table(blob.NAME_SHAVE), image.table(blob.NAME_SHAVE_ARGS)
    kernels = image.table(blob.NAME_SHAVE_KERNELS)
    assert len(kernels) == 2 and kernels["text"].tolist() == [0, 1024]  # two shapes, six calls
    assert calls["kernel"].tolist() == [0, 0, 0, 1, 1, 1]
    first, last = args[:3], args[6:9]
    assert (first["base"][2], first["scalar"][2]) == (NO_BASE, 3)
    assert (last["base"][2], last["offset"][2]) == (3, 4)  # step.n_new is the second int32


def test_barriers_and_masks(image: Blob, small: Model) -> None:
    barriers = image.table(blob.NAME_BARRIERS)
    assert [tuple(b)[:3] for b in barriers[: len(small.programs[0].barriers)].tolist()] == [
        (b.id, b.producers, b.consumers) for b in small.programs[0].barriers
    ]
    row = row_of(image, blob.NAME_DMA, 0, "load.cos", [])
    assert (row["wait"].tolist(), row["post"].tolist(), row["start_after"]) == ([1 << 1, 0], [1 << 2, 0], 3)


def test_weights_hold_each_content_once_where_symbols_say(image: Blob) -> None:
    symbols = {s.name: s for s in image.symbols}
    data = image.content(image.section(blob.NAME_WEIGHTS)).tobytes()
    for i in range(2):
        symbol = symbols[f"const.w{i}"]
        expected = np.random.default_rng(i).standard_normal((24, 16)).astype("<f2").tobytes()
        assert symbol.value % 64 == 0 and data[symbol.value : symbol.value + symbol.size] == expected
    assert symbols["const.bias0"].value == symbols["const.bias1"].value  # other key, same bytes
    initial = image.metadata["states"][1]["initial"]
    assert np.frombuffer(data, "<f2", HEADS * SLOTS * WIDTH, initial).tolist() == [1.0] * (HEADS * SLOTS * WIDTH)
    assert image.metadata["states"][0]["initial"] is None


def test_operands_in_weights_count_from_the_section(image: Blob) -> None:
    start = next(s.value for s in image.symbols if s.name == "const.w1")
    entry = image.table(blob.NAME_ENTRIES)[0]
    rows = image.table(blob.NAME_DMA)[: int(entry["dma_count"])]
    nodes = [image.name(int(n)) for n in rows["node"]]
    loads = [
        int(r["src_offset"]) for r, n in zip(rows, nodes, strict=True) if n == "/layers.1/proj" and r["size"][3] == 16
    ]
    assert loads == [start, start + 256, start + 512]


def test_digests_are_those_of_the_sections(image: Blob) -> None:
    rows = image.table(blob.NAME_DIGEST)
    covered = [image.sections[i].name for i in rows["section"].tolist()]
    assert covered[-1] == blob.NAME_WEIGHTS
    assert set(covered) == {s.name for s in image.sections} - {"", ".npu.digest", ".shstrtab", ".npu.scratch"}
    for row in rows:
        section = image.sections[int(row["section"])]
        assert row["sha256"].tobytes() == hashlib.sha256(image.content(section).tobytes()).digest(), section.name


def test_padding_bytes_are_zero(image: Blob) -> None:
    for name in (blob.NAME_DMA, blob.NAME_DPU, blob.NAME_SHAVE):
        table = image.table(name)
        known = np.zeros(table.dtype.itemsize, bool)
        assert table.dtype.fields is not None
        for field, offset, *_ in table.dtype.fields.values():
            known[offset : offset + field.itemsize] = True
        raw = np.frombuffer(table.tobytes(), "u1").reshape(len(table), -1)
        assert not raw[:, ~known].any()


def test_a_blob_without_weights_scratch_or_ports(tmp_path: Path) -> None:
    draft = Draft("main", 0, 0)
    a, b = draft.local("a", 64), draft.local("b", 64)
    draft.add("dma.in", CopyOp(), [view(a, (8,))], [view(b, (8,))], ("n", "copy", (), "load"))
    path = tmp_path / "x.blob"
    size = write_blob(*one_entry(draft).arguments(), path)
    found = Blob(path)
    assert found.section(blob.NAME_WEIGHTS).size == found.section(blob.NAME_SCRATCH).size == 0
    assert size == found.section(blob.NAME_WEIGHTS).offset == path.stat().st_size


def test_operand_forms_of_the_matrix_engine(tmp_path: Path) -> None:
    draft = Draft("main", 0, 0)
    a, c, w = draft.local("a", 256), draft.local("c", 512), const("w", (2, 4, 8))
    out = view(c, (2, 3, 8), DType.F32, stride=(128, 32, 4))
    op = MmaOp(accumulate=True, b_kn=True, clamp=(-1.0, 6.0))
    draft.add("dpu", op, [view(a, (2, 3, 4)), view(w, (2, 4, 8)), out], [out], ("n", "bmm", (0,), "mma"))
    write_blob(*one_entry(draft).arguments(), tmp_path / "x.blob")
    row = Blob(tmp_path / "x.blob").table(blob.NAME_DPU)[0]
    assert row["flags"] == DpuFlag.ACCUMULATE | DpuFlag.B_KN | DpuFlag.CLAMP
    assert (row["batch"], row["m"], row["n"], row["k"]) == (2, 3, 8, 4)
    assert (row["a_batch"], row["b_batch"], row["c_batch"]) == (24, 64, 128)
    assert (row["c_type"], row["c_stride"]) == (DType.F32, 32)
    assert (row["clamp_lo"], row["clamp_hi"], row["scale"]) == (-1.0, 6.0, 1.0)
