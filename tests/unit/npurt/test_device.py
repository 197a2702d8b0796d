"""Device, DPU and SHAVE records end to end on tiny blobs; binding, states, and errors of requests."""

import numpy as np
import pytest

from npurt import Device, DeviceError, load_bytes
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.abi.records import NO_BASE, Queue
from npurt.image import TaskRef
from npurt.ports import from_device, to_device
from npurt.shave import ProgramBuilder
from tests.unit.npurt.images import CMX, STEP, TinyBlob

F16, F32, I8, I32 = DType.F16, DType.F32, DType.I8, DType.I32
RNG = np.random.default_rng(1)


def f16(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float16)


def product_blob(flags: int = 0, c_type: DType = F32, **fields: object) -> TinyBlob:
    """c [3, 5] = a [3, 8] x b [5, 8] (or [8, 5] with flag 2), a table of 5 rows behind b; operands f16."""
    shape = (8, 5) if flags & 2 else (5, 8)
    inputs = {"a": (F16, (3, 8)), "b": (F16, shape), "table": (F32, (5, 2)), "c0": (F32, (3, 5))}
    blob = TinyBlob(inputs=inputs, outputs={"c": (c_type, (3, 5))})
    blob.dma("a", "cmx", (3, 8), F16)
    blob.dma("b", "cmx", shape, F16, dst_offset=64)
    blob.dma("table", "cmx", (5, 2), F32, dst_offset=192)
    blob.dma("c0", "cmx", (3, 5), F32, dst_offset=256, post=(0,), start_after=1)
    blob.dpu(3, 5, 8, (F16, F16, c_type), (0, 64, 256), flags=flags, wait=(0,), post=(1,), start_after=2, **fields)
    blob.dma("cmx", "c", (3, 5), c_type, src_offset=256, wait=(1,), start_after=2)
    blob.barriers = [(0, 1, 1), (1, 1, 1)]
    return blob


def product(blob: TinyBlob, a: np.ndarray, b: np.ndarray, table: np.ndarray, c0: np.ndarray) -> np.ndarray:
    return Device(load_bytes(blob.to_bytes())).run("main", {"a": a, "b": b, "table": table, "c0": c0})["c"]


def test_dpu_product_and_post_processing():
    a, b, table, c0 = f16(3, 8), f16(5, 8), RNG.normal(size=(5, 2)).astype(np.float32), np.ones((3, 5), np.float32)
    exact = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(product(product_blob(), a, b, table, c0), exact)
    swapped = np.ascontiguousarray(b.T)
    np.testing.assert_array_equal(product(product_blob(2), a, swapped, table, c0), exact)
    np.testing.assert_array_equal(product(product_blob(1), a, b, table, c0), exact + c0)
    np.testing.assert_array_equal(product(product_blob(c_type=F16), a, b, table, c0), exact.astype(np.float16))
    half = exact * np.float32(0.5)
    tabled = half * table[:, 0] + table[:, 1]
    np.testing.assert_array_equal(
        product(product_blob(4, scale=0.5, table_base=CMX, table_offset=192), a, b, table, c0), tabled
    )
    blob = product_blob(8 | 4, scale=0.5, clamp_lo=-0.25, clamp_hi=1.0, table_base=CMX, table_offset=192)
    np.testing.assert_array_equal(product(blob, a, b, table, c0), np.clip(tabled, -0.25, 1))


def test_dpu_batches_with_shared_operand_and_gaps():
    """c[g] = a[g] x b: two batches, b's batch stride 0, rows of a 32 bytes apart."""
    blob = TinyBlob(inputs={"a": (F16, (2, 3, 16)), "b": (F16, (4, 8))}, outputs={"c": (F32, (2, 3, 4))})
    blob.dma("a", "cmx", (96,), F16)
    blob.dma("b", "cmx", (32,), F16, dst_offset=256, post=(0,), start_after=1)
    blob.dpu(
        3, 4, 8, (F16, F16, F32), (0, 256, 512), batch=2, a_stride=32, a_batch=96, b_batch=0, c_batch=48,
        wait=(0,), post=(1,), start_after=2,
    )  # fmt: skip
    blob.dma("cmx", "c", (24,), F32, src_offset=512, wait=(1,), start_after=2)
    blob.barriers = [(0, 1, 1), (1, 1, 1)]
    a, b = f16(2, 3, 16), f16(4, 8)
    got = Device(load_bytes(blob.to_bytes())).run("main", {"a": a, "b": b})["c"]
    np.testing.assert_array_equal(
        got, np.matmul(a[..., :8].astype(np.float64), b.T.astype(np.float64)).astype(np.float32)
    )


def test_integer_product_keeps_its_sum():
    blob = TinyBlob(inputs={"a": (I8, (1, 2000)), "b": (I8, (1, 2000))}, outputs={"c": (I32, (1, 1))}, cmx=8192)
    blob.dma("a", "cmx", (2000,), I8)
    blob.dma("b", "cmx", (2000,), I8, dst_offset=2048, post=(0,), start_after=1)
    blob.dpu(1, 1, 2000, (I8, I8, I32), (0, 2048, 4096), wait=(0,), post=(1,), start_after=2)
    blob.dma("cmx", "c", (1,), I32, src_offset=4096, wait=(1,), start_after=2)
    blob.barriers = [(0, 1, 1), (1, 1, 1)]
    a = np.full((1, 2000), 127, np.int8)
    b = np.full((1, 2000), 127, np.int8)
    b[0, 0] = 126
    got = Device(load_bytes(blob.to_bytes())).run("main", {"a": a, "b": b})["c"]
    assert got.tolist() == [[127 * 127 * 1999 + 127 * 126]]  # beyond 2^24: float32 would round it


def scale_blob() -> TinyBlob:
    """y = f16(x * scalar + n_past) on SHAVE, with a device-owned scalar argument and one from the step block."""
    b = ProgramBuilder()
    x, y = b.arg(ArgMode.IN, F16, (2, 8)), b.arg(ArgMode.OUT, F16, (2, 8))
    scalar, past = b.scalar_arg(), b.scalar_arg()
    product = b.op(Op.MUL, b.load(x), b.cast(b.scalar(scalar), F32))
    b.store(y, b.op(Op.ADD, product, b.cast(b.scalar(past), F32)))
    blob = TinyBlob(rows=1, capacity=50, inputs={"x": (F16, (2, 8))}, outputs={"y": (F16, (2, 8))})
    blob.dma("x", "cmx", (2, 8), F16, post=(5,), start_after=1)
    args = [(CMX, 0, 0), (CMX, 0, 64), (NO_BASE, 3, 0), (STEP, 0, 0)]
    blob.shave(b.bytes(), args, wait=(5,), post=(127,), start_after=2)
    blob.dma("cmx", "y", (2, 8), F16, src_offset=64, wait=(127,), start_after=2)
    blob.barriers = [(5, 1, 1), (127, 1, 1)]
    return blob


def test_shave_reads_scalars_of_the_record_and_the_step_block():
    x = f16(2, 8)
    got = Device(load_bytes(scale_blob().to_bytes())).run("main", {"x": x}, n_past=41)["y"]
    np.testing.assert_array_equal(got, (x.astype(np.float32) * 3 + 41).astype(np.float16))


def test_two_sets_of_bound_buffers_give_equal_results_and_touch_nothing_else():
    device = Device(load_bytes(scale_blob().to_bytes()))
    x = f16(2, 8)
    want = device.run("main", {"x": x}, n_past=2)["y"]
    arenas = [np.full(4096, 0xA5, np.uint8) for _ in range(2)]
    for arena, at in zip(arenas, (64, 1030), strict=True):
        given, result = arena[at : at + 32], arena[at + 300 : at + 332]
        given[...] = x.reshape(-1).view(np.uint8)
        device.bind("main.in.x", given)
        device.bind("main.out.y", result)
        device.run_bound("main", n_past=2)
        np.testing.assert_array_equal(result.view(np.float16).reshape(2, 8), want)
        outside = np.concatenate([arena[:at], arena[at + 32 : at + 300], arena[at + 332 :]])
        assert (outside == 0xA5).all()
        assert given.tobytes() == x.tobytes()


def test_states_have_initial_values_and_can_be_set():
    blob = TinyBlob(
        weights=np.float32([1, 2, 3, 4]).tobytes(), states={"s": (F32, (2,), 8)}, outputs={"y": (F32, (2,))}
    )
    blob.dma("s", "y", (2,), F32)
    device = Device(load_bytes(blob.to_bytes()))
    assert device.run("main", {})["y"].tolist() == [3, 4]
    device.set_state("s", np.array([5, 6]))
    assert device.run("main", {})["y"].tolist() == [5, 6]
    device.reset()
    assert device.state("s").tolist() == [3, 4]
    with pytest.raises(DeviceError, match=r"^state 's': the shape \[3\] was given, \[2\] is due$"):
        device.set_state("s", np.zeros(3))
    with pytest.raises(DeviceError, match=r"^no state 't': there are s$"):
        device.state("t")


def test_wrong_requests():
    device = Device(load_bytes(scale_blob().to_bytes()))
    x = np.zeros((2, 8), np.float32)
    cases = [
        (lambda: device.run("decode", {}), "no entry 'decode': there are main"),
        (lambda: device.run("main", {}), "entry main: input 'x' is missing; its inputs are x"),
        (lambda: device.run("main", {"x": x, "z": x}), "entry main: there is no input 'z'; its inputs are x"),
        (lambda: device.run("main", {"x": x.T}), "entry main, input 'x': float32[8, 2] was given, f16[2, 8] is due"),
        (lambda: device.run("main", {"x": x}, n_past=-1), "entry main: n_past -1, 0 to 50 are possible"),
        (lambda: device.bind("main.in.q", x), "nothing to bind is called 'main.in.q': there are main.in.x, main.out.y"),
        (lambda: device.bind("main.in.x", x), "main.in.x: a C-contiguous buffer of 32 bytes is due, 64 were given"),
        (lambda: device.bind("cmx0", x), "nothing to bind is called 'cmx0': there are main.in.x, main.out.y"),
    ]
    for call, message in cases:
        with pytest.raises(DeviceError) as caught:
            call()
        assert str(caught.value) == message
    fixed = np.frombuffer(bytes(32), np.uint8)
    with pytest.raises(DeviceError, match=r"^main\.out\.y: the buffer is read-only and the device writes it$"):
        device.bind("main.out.y", fixed)
    device.bind("main.in.x", fixed)
    device.run_bound("main")
    with pytest.raises(DeviceError, match=r"^entry main, input 'x': a read-only buffer is bound, use run_bound$"):
        device.run("main", {"x": x})


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Queue, bool]] = []

    def on_start(self, task: TaskRef, active: bool) -> None:
        self.seen.append(("start", task.table, task.queue, active))

    def on_finish(self, task: TaskRef, active: bool) -> None:
        self.seen.append(("finish", task.table, task.queue, active))


def test_hooks_see_every_task_in_order():
    recorder = Recorder()
    Device(load_bytes(scale_blob().to_bytes())).run("main", {"x": f16(2, 8)}, hooks=[recorder])
    tasks = [("dma", Queue.DMA_IN), ("shave", Queue.SHAVE), ("dma", Queue.DMA_OUT)]
    assert recorder.seen == [(when, *task, True) for task in tasks for when in ("start", "finish")]


def test_a_task_whose_predicate_is_false_still_waits_and_posts():
    blob = scale_blob()
    blob._shave[0] |= {"pred": 1, "pred_value": 10}
    device = Device(load_bytes(blob.to_bytes()))
    x = f16(2, 8)
    recorder = Recorder()
    assert not device.run("main", {"x": x}, n_past=10, hooks=[recorder])["y"].any()
    assert [active for _, table, _, active in recorder.seen if table == "shave"] == [False, False]
    np.testing.assert_array_equal(
        device.run("main", {"x": x}, n_past=11)["y"], (x.astype(np.float32) * 3 + 11).astype(np.float16)
    )


@pytest.mark.parametrize(
    ("given", "dtype", "want"),
    [
        (np.float64([1.0000001, 1e300]), F32, np.float32([1.0000001, np.inf])),
        (np.float16([1.5, np.inf]), F32, np.float32([1.5, np.inf])),
        (np.float16([1.5, 300]), I8, np.int8([2, 127])),
        (np.int64([2**40, -5]), I32, np.int32([2**31 - 1, -5])),
        (np.uint8([200, 7]), I8, np.int8([127, 7])),
        (np.array([True, False]), F16, np.float16([1, 0])),
        (np.int64([3, 0]), DType.BOOL, np.uint8([1, 0])),
        (np.uint16([0x3F80, 1]), DType.BF16, np.uint16([0x3F80, 1])),
        (np.float32([1.0, -2.0]), DType.BF16, np.uint16([0x3F80, 0xC000])),
    ],
)
def test_inputs_are_rounded_or_saturated_once(given: np.ndarray, dtype: DType, want: np.ndarray):
    got = to_device(given, dtype)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("memory", "dtype", "graph", "want"),
    [
        (np.float16([1.5, -2]), F16, "f32", np.float32([1.5, -2])),
        (np.float16([1.5, -2]), F16, "f16", np.float16([1.5, -2])),
        (np.uint16([0x3F80, 0xC000]), DType.BF16, "bf16", np.float32([1, -2])),
        (np.float32([0.1]), F32, "f64", np.float64([np.float32(0.1)])),
        (np.int32([-7]), I32, "i64", np.int64([-7])),
        (np.uint8([1, 0]), DType.BOOL, "bool", np.array([True, False])),
    ],
)
def test_outputs_come_in_the_types_of_the_graph(memory: np.ndarray, dtype: DType, graph: str, want: np.ndarray):
    got = from_device(memory, dtype, graph)
    assert got.dtype == want.dtype
    assert not np.shares_memory(got, memory)
    np.testing.assert_array_equal(got, want)
