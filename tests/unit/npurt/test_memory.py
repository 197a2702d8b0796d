"""Device addresses: where sections and buffers lie, and that relocated bases decide what a task touches."""

import numpy as np
import pytest

from npurt import BlobError, BytecodeError, Device, DeviceError, load_bytes
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.exec.memory import FIRST_ADDRESS, GRANULE, AddressSpace
from npurt.shave import ProgramBuilder
from tests.unit.npurt.images import TinyBlob
from tests.unit.npurt.rows import rela

F32 = DType.F32


def test_ranges_are_deterministic_and_never_touch():
    space = AddressSpace()
    memory = [np.zeros(size, np.uint8) for size in (10, 0, GRANULE, GRANULE + 1, 5)]
    found = [space.place(array) for array in memory]
    granules = [(address - FIRST_ADDRESS) / GRANULE for address in found]
    assert granules == [0, 2, 3, 5, 8]
    assert space.resolve(found[0] + 4, 6) == (memory[0], 4)
    assert space.resolve(found[3] + GRANULE, 1) == (memory[3], GRANULE)
    for address, size in ((found[0] + 4, 7), (FIRST_ADDRESS - 1, 1), (found[2] + GRANULE, 1), (found[4], 6)):
        with pytest.raises(DeviceError, match=f"^no memory is mapped at {address:#x} to {address + size:#x}$"):
            space.resolve(address, size)
    space.release(found[3])
    with pytest.raises(DeviceError):
        space.resolve(found[3], 1)


def test_a_bind_addend_moves_the_base_inside_its_buffer():
    """The buffer has 16 bytes before the base: the program sees what lies behind them."""
    blob = TinyBlob(inputs={"x": (F32, (4,))}, outputs={"y": (F32, (4,))})
    blob.dma("x", "y", (4,), F32)
    blob.edit = lambda tables: tables["bind"]["r_addend"].__setitem__(2, 16)
    device = Device(load_bytes(blob.to_bytes()))
    buffer = np.arange(8, dtype=np.float32)
    device.bind("main.in.x", buffer)
    out = np.zeros(4, np.float32)
    device.bind("main.out.y", out)
    device.run_bound("main")
    assert out.tolist() == [4, 5, 6, 7]


def test_a_static_addend_must_leave_the_base_inside_its_section():
    blob = TinyBlob(weights=bytes(64), outputs={"y": (F32, (4,))})
    blob.dma("weights", "y", (4,), F32)
    blob.edit = lambda tables: tables["static"].__setitem__(0, rela(32, 2, 1, 4))
    with pytest.raises(BlobError, match=r"^base 1 ends beyond its section \.npu\.weights$"):
        load_bytes(blob.to_bytes())


def test_a_scratchpad_larger_than_the_machine_is_refused():
    blob = TinyBlob(cmx=1473537, outputs={"y": (F32, (4,))})
    with pytest.raises(BlobError, match=r"^the blob wants 1473537 bytes of scratchpad, npu40xx has 1473536$"):
        load_bytes(blob.to_bytes())


@pytest.mark.parametrize(("count", "fits"), [(221, True), (230, False)])
def test_code_larger_than_the_machine_holds_is_refused(count: int, fits: bool):
    b = ProgramBuilder()
    value = b.load(b.arg(ArgMode.IN, F32, (4,)))
    for _ in range(count):
        value = b.op(Op.NEG, value)
    b.store(b.arg(ArgMode.OUT, F32, (4,)), value)
    blob = TinyBlob(cmx=0, inputs={"x": (F32, (4,))}, outputs={"y": (F32, (4,))}, meta={"target": "ascend950"})
    blob.shave(b.bytes(), [(4, 0, 0), (5, 0, 0)])
    if fits:
        load_bytes(blob.to_bytes())
        return
    with pytest.raises(BytecodeError, match=r"^kernel 0 \(.*\): 8492 bytes of code, ascend950 holds 8192$"):
        load_bytes(blob.to_bytes())
