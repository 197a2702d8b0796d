"""A task graph that uses every field of every record once, with values that are not the defaults."""

from __future__ import annotations

import numpy as np

from npuc.tasks.graph import (
    Buffer,
    CallOp,
    Const,
    CopyOp,
    FillOp,
    Flag,
    GatherOp,
    MmaOp,
    Origin,
    Region,
    Role,
    StepValue,
    Task,
    TaskGraph,
    When,
)
from npuc.tasks.parse import contiguous
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.shave import ProgramBuilder


def program() -> bytes:
    """A valid program with each kind of argument and immediate."""
    b = ProgramBuilder(trip=2)
    x = b.arg(ArgMode.IN, DType.F16, (4, 8), (16, 2), step=64)
    y = b.arg(ArgMode.INOUT, DType.F32, (4, 8))
    n = b.scalar_arg()
    value = b.op(Op.ADD, b.load(x), b.cast(b.scalar(n), DType.F32))
    value = b.transpose(b.transpose(b.op(Op.MUL, value, b.const(0.1, DType.F32)), (1, 0)), (1, 0))
    value = b.concat(b.slice(value, 1, 4, 4), b.slice(value, 1, 0, 4), 1)
    value = b.op(Op.WHERE, b.op(Op.LT, b.iota((8,), 0), b.const(-3, DType.I32)), value, b.load(y))
    b.store(y, b.op(Op.ADD, value, b.op(Op.WHERE, b.const(True, DType.BOOL), b.reduce(Op.SUM, value, 1), value)))
    return b.bytes()


def graph() -> TaskGraph:
    state = Buffer("state.past_key_values.0.key", "ddr", 4096, Role.STATE)
    step = Buffer("step", "ddr", 64, Role.STEP)
    source = Buffer("prefill.in.x y", "ddr", 4096, Role.INPUT)
    const = Const("w 0", DType.F16, (16, 16), lambda: np.zeros((16, 16), "f2"))
    weights = Buffer("w", "ddr", 512, Role.CONST, const=const)
    out = Buffer("out", "ddr", 4096, Role.OUTPUT)
    tile = Buffer("tile", "cmx", 512, align=128, where='k "1".py:3', pinned=0)
    rows = Buffer("rows", "cmx", 256)
    origin = Origin("prefill", "/model/layers.0/attn", "attention", (0, 3), "load k")
    square = view(tile, DType.F16, (16, 16))
    scalar = view(rows, DType.F32, ())
    count = view(rows, DType.I32, (1,), 64)
    call_args = (("r", 0), ("w", 0), ("s", "n_new"))
    return TaskGraph(
        "prefill",
        [
            Task(
                "dma.in",
                CopyOp(1, StepValue("n_past", -8), "n_new", None),
                (view(source, DType.F16, (2, 4), 64, (64, 2)),),
                (view(tile, DType.F16, (2, 4)),),
                origin,
            ),
            Task("dma.in", CopyOp(), (view(weights, DType.F16, (16, 16)),), (square,)),
            Task("dma.in", FillOp(0x7E00), (), (view(rows, DType.F16, (3,), 4, (-2,)),)),
            Task(
                "dma.in",
                GatherOp(50),
                (view(source, DType.F32, (50, 4)), view(rows, DType.I32, (2,))),
                (view(tile, DType.F32, (2, 4), 128),),
                when=When("n_past", 64),
            ),
            Task(
                "dpu",
                MmaOp(True, True, True, 0.1, (-np.inf, 6.0)),
                (
                    view(tile, DType.F16, (16, 8)),
                    view(tile, DType.F16, (8, 16)),
                    view(tile, DType.F32, (16, 2), 256),
                    scalar,
                ),
                (scalar,),
            ),
            Task(
                "dpu",
                MmaOp(codes=DType.U4, zero=8, scales=True, group=8),
                (
                    view(tile, DType.F16, (16, 16)),
                    view(tile, DType.U8, (8, 8), 512, (16, 1)),
                    view(tile, DType.F16, (8, 2), 520, (16, 2)),
                ),
                (view(tile, DType.F32, (16, 8)),),
            ),
            Task(
                "shave",
                CallOp("soft max", program(), call_args),
                (view(tile, DType.F16, (4, 8)), view(step, DType.I32, (1,))),
                (view(tile, DType.F32, (4, 8), 128),),
                Origin(kernel="softmax"),
            ),
            Task(
                "shave",
                CallOp("opaque", b"\x01\x02" * 40, (("i", -7), ("w", 0))),
                (),
                (view(rows, DType.BOOL, (4,)),),
            ),
            Task(
                "dma.out",
                CopyOp(shift_dst="n_past", layout="nd2nz"),
                (view(rows, DType.BF16, (1, 8)), count),
                (view(state, DType.BF16, (1, 8), 16),),
                flag=Flag((1,), taken=False),
            ),
            Task(
                "dma.out",
                CopyOp(),
                (view(rows, DType.I8, (8,)), view(rows, DType.I8, (8,), 8)),
                (view(out, DType.I8, (8,)), view(out, DType.I8, (8,), 64)),
                flag=Flag((0, 1)),
            ),
        ],
        rows=128,
        capacity=1152,
    )


def view(
    buffer: Buffer, dtype: DType, shape: tuple[int, ...], offset: int = 0, stride: tuple[int, ...] | None = None
) -> Region:
    return Region(buffer, offset, dtype, shape, contiguous(shape, dtype.nbytes) if stride is None else stride)
