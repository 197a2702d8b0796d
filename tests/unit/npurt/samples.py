"""A blob with rows in every table, for tests that change one thing in it."""

from __future__ import annotations

import pytest

from npurt import BlobError, load_bytes
from npurt.abi import blob
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder
from tests.unit.npurt.images import CMX, TinyBlob

F16, F32 = DType.F16, DType.F32
NEGATE_ARGS = [(CMX, 0, 0), (CMX, 0, 64)]


def negate(shape: tuple[int, ...] = (2, 8)) -> bytes:
    b = ProgramBuilder()
    x, y = b.arg(ArgMode.IN, F16, shape), b.arg(ArgMode.OUT, F16, shape)
    b.store(y, b.op(Op.NEG, b.load(x)))
    return b.bytes()


def good() -> TinyBlob:
    """y = -x through CMX, a product with the weights, and a cache row; every table has rows."""
    tiny = TinyBlob(
        rows=2, capacity=3, weights=bytes(range(256)), inputs={"x": (F16, (2, 8))}, outputs={"y": (F16, (2, 8))},
        states={"k": (F16, (5, 8), 32)},
    )  # fmt: skip
    tiny.dma("x", "cmx", (2, 8), F16, post=(0,), start_after=1)
    tiny.dma("weights", "cmx", (4, 8), F16, dst_offset=512, post=(0,), start_after=1)
    tiny.shave(negate(), NEGATE_ARGS, wait=(0,), post=(1,), start_after=2)
    tiny.dpu(2, 4, 8, (F16, F16, F32), (64, 512, 1024), wait=(1,), post=(2,), start_after=3)
    tiny.dma("cmx", "y", (2, 8), F16, src_offset=64, wait=(2,), start_after=3)
    step = {blob.Reloc.STEP_DST: ("step.n_past", 0), blob.Reloc.STEP_VALID: ("step.n_new", 0)}
    tiny.dma("cmx", "k", (2, 8), F16, step=step)
    tiny.barriers = [(0, 2, 1), (1, 1, 1), (2, 1, 1)]
    return tiny


def refused(tiny: TinyBlob) -> str:
    with pytest.raises(BlobError) as caught:
        load_bytes(tiny.to_bytes())
    assert "\n" not in str(caught.value)
    return str(caught.value)
