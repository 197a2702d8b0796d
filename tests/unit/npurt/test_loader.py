"""The loader: what a good blob gives, and one line for every kind of bad one."""

from collections.abc import Callable

import numpy as np
import pytest

import npurt
from npurt import BlobError, BytecodeError, DeadlockError, load, load_bytes
from npurt.abi.dtypes import DType
from tests.unit.npurt.images import Tables, TinyBlob
from tests.unit.npurt.rows import rela, rows_of
from tests.unit.npurt.samples import good, negate, refused

F16, F32 = DType.F16, DType.F32


def test_a_good_blob(tmp_path):
    path = tmp_path / "good.npu"
    path.write_bytes(good().to_bytes())
    image = load(path)
    assert image.version == (1, 1)
    assert image.assets == {"note.txt": b"hello"}
    assert image.meta["target"] == "npu40xx"
    assert not image.weights.flags.writeable
    entry = image.entries["main"]
    assert (entry.rows, entry.capacity, entry.max_past) == (2, 3, 3)
    # the last store has no barrier: it goes as soon as its queue is free
    assert [str(task) for task in entry.tasks] == [
        "dma_in task 0", "dma_in task 1", "shave task 0", "dpu task 0", "dma_out task 2", "dma_out task 3",
    ]  # fmt: skip
    x = np.float16(np.random.default_rng(0).normal(size=(2, 8)))
    np.testing.assert_array_equal(npurt.Device(image).run("main", {"x": x})["y"], -x)


def test_path_errors(tmp_path):
    empty = tmp_path / "empty.npu"
    empty.write_bytes(b"")
    with pytest.raises(BlobError, match=r"empty\.npu: an empty file is no blob$"):
        load(empty)
    text = tmp_path / "text.npu"
    text.write_bytes(b"hello " * 20)
    with pytest.raises(BlobError, match=r"text\.npu: no 64-bit little-endian ELF file, so no blob of npuc$"):
        load(text)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.npu")


@pytest.mark.parametrize(
    ("version", "remedy"),
    [
        ((1, 7), "use a newer npuc to run it"),
        ((2, 0), "use a newer npuc to run it"),
        ((0, 3), "compile the model again"),
    ],
)
def test_versions_are_both_named(version: tuple[int, int], remedy: str):
    tiny = good()
    tiny.version = version
    assert refused(tiny) == f"the blob has format {version[0]}.{version[1]}, this runtime reads 1.0 to 1.1: {remedy}"


def test_a_changed_section_does_not_match_its_digest():
    data = bytearray(good().to_bytes())
    at = data.index(bytes(range(250)))
    data[at + 3] ^= 1
    with pytest.raises(
        BlobError, match=r"^section \.npu\.weights: its SHA-256 is not the one in the blob, the file is damaged$"
    ):
        load_bytes(bytes(data))


def set_field(table: str, row: int, **fields: object) -> Callable[[Tables], None]:
    def edit(tables: Tables) -> None:
        for name, value in fields.items():
            tables[table][name][row] = value

    return edit


def replace(table: str, rows: np.ndarray) -> Callable[[Tables], None]:
    return lambda tables: tables.__setitem__(table, rows)


EDITS = [
    (set_field("bases", 0, kind=9), "base 0: kind 9, tile 0 or flags 0 is unknown"),
    (set_field("bases", 0, size=1 << 30), "base 0 of kind CMX: 1073741824 bytes, 67108864 are allowed"),
    (set_field("bases", 1, size=300), "base 1 of kind CONST: 300 bytes, 256 are due"),
    (set_field("bases", 0, symbol=99), "section .npu.bases names a symbol beyond the 10 that there are"),
    (set_field("bases", 2, symbol=1), "section .rela.npu.bases: base 2 is patched by the symbol 'scratch', addend 0"),
    (replace("bind", rows_of([])), "base 0 has no relocation"),
    (
        replace("static", rows_of([rela(32, 2, 1, 0)] * 2)),
        "section .rela.npu.bases: base 1 has relocation type 1 or is patched twice"),
    (
        replace("static", rows_of([rela(40, 2, 1, 0)])),
        "section .rela.npu.bases: byte 40 is not the field 'address' of one of 7 rows",
    ),
    (replace("static", rows_of([rela(32, 2, 1, 8)])), "base 1 ends beyond its section .npu.weights"),
    (replace("static", rows_of([rela(32, 77, 1, 0)])), "section .rela.npu.bases: symbol 77 of 10"),
    (set_field("symbols", 2, st_shndx=0), "base 1 of kind 2 lies in no section"),
    (set_field("step", 0, r_addend=60),
     "entry main, dma task 3: destination spans bytes 60 to 92 of base 4, which has 80"),
    (set_field("step", 0, r_addend=-16),
     "section .rela.npu.dma.step: dst_offset of DMA 3 is patched twice or has the addend -16"),
    (set_field("step", 0, r_offset=3 * 192 + 25),
     "section .rela.npu.dma.step: byte 601 is not the field 'dst_offset' of one of 4 rows"),
    (set_field("step", 0, r_info=5 << 32 | 4), "section .rela.npu.dma.step: relocation type 4 by the symbol 'state.k'"),
    (set_field("entries", 0, dma_count=9), "entry main: dma rows 0 to 9 of 4"),
    (set_field("entries", 0, rows=3), "entry main: rows and capacity are not those of the metadata"),
    (set_field("entries", 0, cmx_peak=5000), "entry main: its peaks of memory are larger than the bases"),
    (set_field("entries", 0, base_count=1), "entry main: its bases are not the ports of the metadata"),
    (set_field("dma", 0, op=7), "entry main, dma task 0: unknown operation"),
    (set_field("dma", 0, src_type=0), "entry main, dma task 0: unknown type"),
    (set_field("dma", 0, queue=2), "entry main, dma task 0: no DMA queue"),
    (set_field("dma", 0, src_base=50), "entry main, dma task 0: source has base 50, there are 7"),
    (set_field("dma", 1, dst_base=1), "entry main, dma task 1: destination writes base 1, which is CONST"),
    (set_field("dma", 1, src_offset=250),
     "entry main, dma task 1: source spans bytes 250 to 314 of base 1, which has 256"),
    (set_field("dma", 0, dst_stride=(0, 0, -64, 2)),
     "entry main, dma task 0: destination spans bytes -64 to 16 of base 0, which has 4096"),
    (set_field("dma", 0, size=(2**32 - 1,) * 4), "entry main, dma task 0: source spans bytes"),
    (set_field("dma", 0, src_stride=(2**62, 2**62, 16, 2), size=(9, 9, 2, 8)),
     "entry main, dma task 0: source spans bytes"),
    (set_field("dma", 0, valid=3), "entry main, dma task 0: more valid rows than rows"),
    (set_field("dpu", 0, flags=64), "entry main, dpu task 0: flag is unknown"),
    (set_field("dpu", 0, pred=7), "entry main, dpu task 0: predicate is unknown"),
    (set_field("dma", 0, pred_base=1), "entry main, dma task 0: a predicate of the step has a base"),
    (set_field("dma", 0, pred=3, pred_value=2), "entry main, dma task 0: the flag is not aligned"),
    (set_field("dma", 0, pred=3, pred_value=4096),
     "entry main, dma task 0: flag spans bytes 4096 to 4100 of base 0, which has 4096"),
    (set_field("shave", 0, pred=4, pred_value=-4),
     "entry main, shave task 0: flag spans bytes -4 to 0 of base 0, which has 4096"),
    (set_field("dma", 0, op=4, index_bound=2**31), "entry main, dma task 0: index_bound beyond int32"),
    (set_field("dma", 0, op=4, index_base=0, index_bound=4096), "entry main, dma task 0: destination spans bytes"),
    (set_field("dpu", 0, a_type=8), "entry main, dpu task 0: operands are neither both floats nor both integers"),
    (set_field("dpu", 0, batch=2**31),
     "entry main, dpu task 0: operand c has 68719476736 bytes of elements, more than its base"),
    (set_field("dma", 0, size=(2**31, 1, 2, 8)),
     "entry main, dma task 0: destination has 68719476736 bytes of elements"),
    (set_field("dpu", 0, k=4000), "entry main, dpu task 0: operand a spans bytes 64 to 8080 of base 0, which has 4096"),
    (set_field("dpu", 0, c_base=1), "entry main, dpu task 0: operand c writes base 1, which is CONST"),
    (set_field("shave", 0, kernel=4), "entry main, shave task 0: kernel does not exist"),
    (set_field("shave", 0, arg_count=1), "entry main, shave task 0: 1 arguments from row 0 of 2, the kernel takes 2"),
    (set_field("args", 1, offset=4090),
     "entry main, shave task 0: argument spans bytes 4090 to 4122 of base 0, which has 4096"),
    (set_field("args", 1, base=5), "entry main, shave task 0: argument writes base 5, which is INPUT"),
    (set_field("args", 0, base=2**32 - 1), "entry main, shave task 0: a pointer argument is given as a number"),
    (set_field("kernels", 0, text_bytes=5000), "kernel 0 (kernel): text ends at byte 5000 of 1024"),
    (set_field("barriers", 0, id=128), "entry main: barrier id 128 with 2 producers and 1 consumers"),
    (set_field("barriers", 0, producers=1),
     "entry main: dma_in task 1 posts barrier 0 once more than the barrier table says"),
    (set_field("barriers", 0, consumers=0),
     "entry main: shave task 0 waits for barrier 0 once more than the barrier table says"),
    (set_field("barriers", 2, consumers=2),
     "entry main: all tasks have run and barriers are left that no task posted or waited for"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "message"), EDITS, ids=[message[:60] for _, message in EDITS])
def test_records_are_refused_by_name(edit: Callable[[Tables], None], message: str):
    tiny = good()
    tiny.edit = edit
    assert refused(tiny).startswith(message)


def test_deadlock_names_the_stuck_tasks():
    tiny = good()
    tiny.edit = set_field("barriers", 0, producers=3)
    with pytest.raises(DeadlockError) as caught:
        load_bytes(tiny.to_bytes())
    assert str(caught.value) == (
        "entry main: no queue can go on: dma_out task 2 waits for barrier 2 (1 producers left); "
        "dpu task 0 waits for barrier 1 (1 producers left); shave task 0 waits for barrier 0 (1 producers left)"
    )


def test_a_physical_id_is_programmed_again_when_it_is_free():
    """Six moves in a row over one physical barrier id, with consumer and producer on alternating queues."""
    tiny = TinyBlob(inputs={"x": (F32, (4,))}, outputs={"y": (F32, (4,))})
    names = ["x", "cmx", "scratch", "cmx", "scratch", "cmx", "y"]
    for i in range(6):
        waits = {"wait": (9,)} if i else {}
        posts = {"post": (9,)} if i < 5 else {}
        tiny.dma(names[i], names[i + 1], (4,), F32, start_after=min(i + 1, 5), **waits, **posts)
    tiny.barriers = [(9, 1, 1)] * 5
    # a task that posts row i waits for row i - 1 on the same id: row i cannot be programmed before it has started
    with pytest.raises(DeadlockError, match=r"barrier row 1, 1 rows are programmed"):
        load_bytes(tiny.to_bytes())
    tiny.barriers = [(9 + i % 2, 1, 1) for i in range(5)]

    def alternate(tables: Tables) -> None:
        for i in range(6):
            wait, post = (9 + (i - 1) % 2 if i else None), (9 + i % 2 if i < 5 else None)
            tables["dma"]["wait"][i] = (0 if wait is None else 1 << wait, 0)
            tables["dma"]["post"][i] = (0 if post is None else 1 << post, 0)

    tiny.edit = alternate
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(npurt.Device(load_bytes(tiny.to_bytes())).run("main", {"x": x})["y"], x)


def test_bad_bytecode_names_its_kernel():
    tiny = good()
    code = bytearray(negate())
    code[-1] = 1
    tiny._kernels[0] = bytes(code)
    with pytest.raises(
        BytecodeError, match=r"^kernel 0 \(kernel\): instruction 2, STORE: an unused field is not zero$"
    ):
        load_bytes(tiny.to_bytes())
