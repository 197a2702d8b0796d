"""The device's protocol: states, bound buffers, limits of the step, and entries that go to exact mode."""

from __future__ import annotations

import numpy as np
import pytest

import npurt
from npurt import DeviceError
from npurt.abi.dtypes import DType
from npurt.fast import FastDevice, LinkOptions, open_device
from tests.unit.npurt.images import TinyBlob
from tests.unit.npurt.samples import good

F16, F32 = DType.F16, DType.F32
X = np.linspace(-2, 2, 16).reshape(2, 8).astype(np.float32)


@pytest.fixture
def device() -> FastDevice:
    return FastDevice(npurt.load_bytes(good().to_bytes()))


def test_a_run_gives_what_exact_mode_gives(device):
    exact = npurt.Device(device.image)
    for n_past in (0, 1, 3):
        wanted = exact.run("main", {"x": X}, n_past=n_past)
        got = device.run("main", {"x": X}, n_past=n_past)
        np.testing.assert_array_equal(got["y"], wanted["y"])
        assert got["y"].dtype == wanted["y"].dtype
        np.testing.assert_array_equal(device.state("k"), exact.state("k"))
    assert device.notes == []


def test_a_state_is_device_types_at_the_edges(device):
    values = np.arange(40, dtype=np.float64).reshape(5, 8) / 3
    device.set_state("k", values)
    assert device.state("k").dtype == np.float16
    np.testing.assert_array_equal(device.state("k"), values.astype(np.float16))
    device.reset()
    np.testing.assert_array_equal(device.state("k"), npurt.Device(device.image).state("k"))


def test_bound_buffers_hold_the_devices_bytes(device):
    x, y, k = X.astype(np.float16), np.zeros((2, 8), np.float16), np.full((5, 8), 3, np.float16)
    for symbol, buffer in (("main.in.x", x), ("main.out.y", y), ("state.k", k)):
        device.bind(symbol, buffer)
    device.run_bound("main", n_past=1, n_new=1)
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(k[1], x[0])
    assert (k[[0, 2, 3, 4]] == 3).all()
    x[...] = 5
    k[0] = 9
    device.run_bound("main", n_past=2, n_new=1)
    assert (y == -5).all()
    assert k[:, 0].tolist() == [9, -2, 5, 3, 3]


@pytest.mark.parametrize(("n_past", "n_new"), [(4, 2), (-1, 1), (0, 3)])
def test_a_step_that_leaves_the_cache_is_refused(device, n_past, n_new):
    before = device.state("k")
    with pytest.raises(DeviceError):
        device.run("main", {"x": X}, n_past=n_past, n_new=n_new)
    with pytest.raises(DeviceError):
        npurt.Device(device.image).run("main", {"x": X}, n_past=n_past, n_new=n_new)
    np.testing.assert_array_equal(device.state("k"), before)


@pytest.mark.parametrize(
    ("symbol", "buffer", "message"),
    [
        ("main.in.z", np.zeros(4), "nothing to bind is called 'main.in.z': there are state.k, main.in.x, main.out.y"),
        ("main.out.y", np.zeros(4), "main.out.y: a C-contiguous buffer of 32 bytes is due, 32 were given"),
        ("state.k", np.zeros(3), "state.k: a C-contiguous buffer of 80 bytes is due, 24 were given"),
    ],
)
def test_wrong_bindings_are_refused(device, symbol, buffer, message):
    if symbol == "main.out.y":
        buffer = buffer.view(np.uint8)[::1].repeat(2)[::2]
    with pytest.raises(DeviceError) as caught:
        device.bind(symbol, buffer)
    assert str(caught.value) == message


def test_an_unknown_mode_is_refused(device):
    with pytest.raises(DeviceError, match="no mode 'quick': there are exact and fast"):
        open_device(device.image, "quick")
    assert isinstance(open_device(device.image, "exact"), npurt.Device)


def odd() -> TinyBlob:
    """f16 at an odd byte, read as bytes: no conversion of a shadow begins there."""
    tiny = TinyBlob(inputs={"x": (F16, (8,))}, outputs={"y": (DType.U8, (16,))})
    tiny.dma("x", "cmx", (8,), F16, dst_offset=1, post=(0,), start_after=1)
    tiny.dma("cmx", "y", (16,), DType.U8, src_offset=1, wait=(0,), start_after=1)
    tiny.barriers = [(0, 1, 1)]
    return tiny


def test_an_entry_that_cannot_be_linked_runs_exactly():
    lines: list[str] = []
    device = FastDevice(npurt.load_bytes(odd().to_bytes()), warn=lines.append)
    for _ in range(2):
        np.testing.assert_array_equal(device.run("main", {"x": X[0]})["y"], X[0].astype(np.float16).view(np.uint8))
    assert lines == device.notes
    assert len(lines) == 1
    assert "entry main runs in exact mode: dma_out task 1 wants bytes 1 to 17 of base 0" in lines[0]


def test_stats_say_what_was_decoded(device):
    device.prepare("main")
    stats = device.stats
    assert stats["decoded_bytes"] <= stats["budget_bytes"]
    assert stats["entries"]["main"]["tasks"] == 6


def test_beyond_the_budget_constants_are_decoded_on_use():
    image = npurt.load_bytes(good().to_bytes())
    device = FastDevice(image, LinkOptions(budget=0))
    np.testing.assert_array_equal(device.run("main", {"x": X})["y"], npurt.Device(image).run("main", {"x": X})["y"])
    assert device.stats["decoded_bytes"] == 0
