"""DMA records on a device: conversions, strides, valid rows, gathers, fills, predicates and the step block."""

import numpy as np
import pytest

from npurt import Device, DeviceError, load_bytes
from npurt.abi.blob import Reloc
from npurt.abi.dtypes import DType
from tests.unit.npurt.images import TinyBlob

F16, F32, I8, I32, I64 = DType.F16, DType.F32, DType.I8, DType.I32, DType.I64
RNG = np.random.default_rng(0)


def run(blob: TinyBlob, inputs: dict[str, np.ndarray], **step: int) -> dict[str, np.ndarray]:
    return Device(load_bytes(blob.to_bytes())).run(blob.name, inputs, **step)


@pytest.mark.parametrize(
    ("origin", "to", "values", "want"),
    [
        (F32, F16, [1.0, 1e-7, 70000.0, -2.0009766], np.float16([1.0, 1e-7, np.inf, -2.0])),
        (F16, F32, [0.1, -6e-8, 65504.0, 3.0], np.float16([0.1, -6e-8, 65504.0, 3.0]).astype(np.float32)),
        (I64, I32, [2**40, -(2**40), 7, -7], np.int32([2**31 - 1, -(2**31), 7, -7])),
        (F32, I8, [1.5, 2.5, 300.0, np.nan], np.int8([2, 2, 127, 0])),
    ],
)
def test_conversion(origin: DType, to: DType, values: list[float], want: np.ndarray):
    blob = TinyBlob(inputs={"x": (origin, (4,))}, outputs={"y": (to, (4,))})
    blob.dma("x", "cmx", (4,), origin, post=(0,), start_after=1)
    blob.dma("cmx", "y", (4,), origin, dst_type=to, wait=(0,), start_after=1)
    blob.barriers = [(0, 1, 1)]
    got = run(blob, {"x": np.array(values, origin.storage)})["y"]
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_strides_move_a_transposed_slice():
    """y[j, i] = x[i, 2 j + 1] of x [5, 8] f16."""
    blob = TinyBlob(inputs={"x": (F16, (5, 8))}, outputs={"y": (F16, (4, 5))})
    blob.dma("x", "y", (4, 5), F16, src_offset=2, src_stride=(0, 0, 4, 16))
    x = RNG.normal(size=(5, 8)).astype(np.float16)
    np.testing.assert_array_equal(run(blob, {"x": x})["y"], x[:, 1::2].T)


def test_a_load_zero_fills_and_a_store_leaves_the_rest():
    blob = TinyBlob(rows=4, inputs={"x": (F32, (4, 3))}, outputs={"loaded": (F32, (4, 3)), "stored": (F32, (4, 3))})
    valid = {Reloc.STEP_VALID: ("step.n_new", 0)}
    blob.dma("x", "loaded", (4, 3), F32, step=valid)
    blob.dma("x", "cmx", (4, 3), F32, post=(3,), start_after=1)
    blob.dma("cmx", "stored", (4, 3), F32, step=valid, wait=(3,), start_after=1)
    blob.barriers = [(3, 1, 1)]
    device = Device(load_bytes(blob.to_bytes()))
    kept = np.full((4, 3), 7, np.float32)
    device.bind("main.out.stored", kept)
    x = np.full((4, 3), np.nan, np.float32)
    x[:2] = 1
    got = device.run("main", {"x": x}, n_new=2)
    np.testing.assert_array_equal(got["loaded"], [[1] * 3, [1] * 3, [0] * 3, [0] * 3])
    np.testing.assert_array_equal(kept, [[1] * 3, [1] * 3, [7] * 3, [7] * 3])


def cache_blob() -> TinyBlob:
    """A cache [G=2, N=6, D=3] f16: stores n_new of 2 rows at n_past, then loads the past rows of 4."""
    blob = TinyBlob(
        rows=2, capacity=4, inputs={"new": (F16, (2, 2, 3))}, outputs={"past": (F16, (2, 4, 3))},
        states={"k": (F16, (2, 6, 3), None)},
    )  # fmt: skip
    blob.dma(
        "k", "past", (2, 4, 3), F16, src_stride=(0, 36, 6, 2), row_dim=2, step={Reloc.STEP_VALID: ("step.n_past", 0)}
    )
    blob.dma("new", "cmx", (2, 2, 3), F16, post=(0,), start_after=1)
    store = {Reloc.STEP_DST: ("step.n_past", 0), Reloc.STEP_VALID: ("step.n_new", 0)}
    blob.dma("cmx", "k", (2, 2, 3), F16, dst_stride=(0, 36, 6, 2), row_dim=2, step=store, wait=(0,), start_after=1)
    blob.barriers = [(0, 1, 1)]
    return blob


def test_cache_rows_are_appended_in_place():
    device = Device(load_bytes(cache_blob().to_bytes()))
    rows = np.arange(1, 31, dtype=np.float16).reshape(2, 5, 3)
    want = np.zeros((2, 6, 3), np.float16)
    n_past = 0
    for n_new in (2, 1, 1):
        new = np.full((2, 2, 3), np.nan, np.float16)
        new[:, :n_new] = rows[:, n_past : n_past + n_new]
        past = device.run("main", {"new": new}, n_past=n_past, n_new=n_new)["past"]
        np.testing.assert_array_equal(past, np.where(np.arange(4)[None, :, None] < n_past, rows[:, :4], 0))
        want[:, n_past : n_past + n_new] = rows[:, n_past : n_past + n_new]
        n_past += n_new
        np.testing.assert_array_equal(device.state("k"), want)
    device.reset()
    assert not device.state("k").any()


def test_steps_outside_the_cache_are_refused():
    image = load_bytes(cache_blob().to_bytes())
    assert image.entries["main"].max_past == 4
    device = Device(image)
    new = np.zeros((2, 2, 3), np.float16)
    with pytest.raises(DeviceError, match=r"^entry main: n_past 5, 0 to 4 are possible$"):
        device.run("main", {"new": new}, n_past=5)
    with pytest.raises(DeviceError, match=r"^entry main: n_new 3, 0 to 2 are possible$"):
        device.run("main", {"new": new}, n_new=3)
    device.run("main", {"new": new}, n_past=4, n_new=2)


def test_rows_past_the_end_are_refused_when_they_are_submitted():
    blob = cache_blob()
    blob.states = {"k": (F16, (2, 5, 3), None)}
    blob.edit = lambda tables: (
        tables["dma"]["src_stride"].__setitem__((0, 1), 30) or tables["dma"]["dst_stride"].__setitem__((2, 1), 30)
    )
    device = Device(load_bytes(blob.to_bytes()))
    new = np.ones((2, 2, 3), np.float16)
    device.run("main", {"new": new}, n_past=4, n_new=1)
    message = (
        r"^entry main with n_past 4, n_new 2: dma task 2: destination spans bytes 24 to 66 of base 4, which has 60$"
    )
    with pytest.raises(DeviceError, match=message):
        device.run("main", {"new": new}, n_past=4, n_new=2)


def test_gather_gives_zero_rows_outside():
    blob = TinyBlob(inputs={"table": (F16, (5, 4)), "index": (I32, (6,))}, outputs={"y": (F32, (6, 4))})
    blob.dma("table", "y", (6, 4), F16, dst_type=F32, op=3, index_base=blob.base("index"), index_bound=4, valid=5)
    table = RNG.normal(size=(5, 4)).astype(np.float16)
    got = run(blob, {"table": table, "index": np.int32([3, 4, -1, 0, 3, 0])})["y"]
    zero = np.zeros(4)
    np.testing.assert_array_equal(got, [table[3], zero, zero, table[0], table[3], zero])


def test_fill_and_predicates():
    blob = TinyBlob(rows=3, capacity=9, outputs={"y": (F16, (4, 2)), "z": (F32, (3,)), "w": (I8, (2,))})
    blob.dma("weights", "y", (4, 2), F16, op=2, fill=0x3C00)
    blob.dma("weights", "z", (3,), F32, op=2, fill=0x40490FDB, pred=1, pred_value=4)
    blob.dma("weights", "w", (2,), I8, op=2, fill=0xFF, pred=2, pred_value=1)
    device = Device(load_bytes(blob.to_bytes()))
    got = device.run("main", {}, n_past=4, n_new=1)
    assert got["y"].tolist() == [[1.0, 1.0]] * 4
    assert got["z"].tolist() == [0, 0, 0]
    assert got["w"].tolist() == [0, 0]
    got = device.run("main", {}, n_past=5, n_new=2)
    np.testing.assert_array_equal(got["z"], np.full(3, np.pi, np.float32))
    assert got["w"].tolist() == [-1, -1]


def test_overlapping_move_inside_scratch():
    blob = TinyBlob(inputs={"x": (I32, (8,))}, outputs={"y": (I32, (8,))})
    blob.dma("x", "scratch", (8,), I32)
    blob.dma("scratch", "scratch", (6,), I32, dst_offset=8)
    blob.dma("scratch", "y", (8,), I32)
    assert run(blob, {"x": np.arange(8, dtype=np.int32)})["y"].tolist() == [0, 1, 0, 1, 2, 3, 4, 5]


def test_a_gather_from_an_empty_table_is_zero():
    blob = TinyBlob(inputs={"table": (F16, (0, 4)), "index": (I32, (2,))}, outputs={"y": (F16, (2, 4))})
    blob.dma("table", "y", (2, 4), F16, op=3, index_base=blob.base("index"), index_bound=0)
    got = run(blob, {"table": np.zeros((0, 4), np.float16), "index": np.int32([0, -1])})["y"]
    np.testing.assert_array_equal(got, np.zeros((2, 4)))


def test_a_converting_load_zero_fills_too():
    blob = TinyBlob(rows=3, inputs={"x": (F32, (3, 2))}, outputs={"y": (F16, (3, 2))})
    blob.dma("x", "y", (3, 2), F32, dst_type=F16, step={Reloc.STEP_VALID: ("step.n_new", -1)})
    x = np.full((3, 2), 0.1, np.float32)
    got = run(blob, {"x": x}, n_new=3)["y"]
    np.testing.assert_array_equal(got, np.concatenate([x[:2].astype(np.float16), np.zeros((1, 2))]))
    assert not run(blob, {"x": x}, n_new=0)["y"].any()
