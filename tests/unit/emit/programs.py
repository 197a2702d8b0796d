"""Small scheduled programs made by hand, with at least one task of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.graph.entry import LlmInfo, StateSpec
from npuc.report.metadata import EntryPorts, Port, build_metadata
from npuc.schedule.program import Barrier, EntryProgram, Sync
from npuc.tasks.graph import (
    Buffer,
    CallOp,
    Const,
    CopyOp,
    FillOp,
    GatherOp,
    MmaOp,
    Origin,
    Region,
    Role,
    StepValue,
    Task,
    When,
)
from npurt.abi import bytecode
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType

ROWS, HEADS, WIDTH, SLOTS = 4, 2, 8, 19  # chunk, KV heads, head width, physical rows (16 + 4 - 1)


def const(key: str, shape: tuple[int, ...], dtype: DType = DType.F16, seed: int = 0) -> Buffer:
    """A CONST buffer of random numbers that depend on the seed alone."""

    def produce() -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype.storage)

    nbytes = int(np.prod(shape)) * dtype.nbytes
    return Buffer(f"const.{key}", "ddr", nbytes, Role.CONST, const=Const(key, dtype, shape, produce))


def view(buffer: Buffer, shape: tuple[int, ...], dtype: DType = DType.F16, offset: int = 0,
         stride: tuple[int, ...] | None = None) -> Region:  # fmt: skip
    """A region; packed where no stride is given."""
    if stride is None:
        packed = [dtype.nbytes]
        for extent in reversed(shape[1:]):
            packed.insert(0, packed[0] * extent)
        stride = tuple(packed[-len(shape) :])
    return Region(buffer, offset, dtype, shape, stride)


def exp_code(shape: tuple[int, ...], dtype: DType = DType.F16) -> bytes:
    """Bytecode of out = exp(x) * scalar over one tile."""
    header = np.zeros((), bytecode.HEADER)
    header["magic"], header["trip"], header["args"], header["registers"], header["instructions"] = bytecode.MAGIC, 1, 3, 5, 6
    args = np.zeros(3, bytecode.ARG)
    args["mode"] = [ArgMode.IN, ArgMode.OUT, ArgMode.SCALAR]
    args["dtype"] = [dtype, dtype, DType.I32]
    args["rank"] = [len(shape), len(shape), 0]
    for row in args[:2]:
        row["shape"][: len(shape)] = shape
        row["stride"][: len(shape)] = view(Buffer("", "", 0), shape, dtype).stride
    registers = np.zeros(5, bytecode.REGISTER)
    registers["dtype"] = [DType.F32, DType.F32, DType.I32, DType.F32, DType.F32]
    registers["rank"] = [len(shape), len(shape), 0, 0, len(shape)]
    for i in (0, 1, 4):
        registers[i]["shape"][: len(shape)] = shape
    code = np.zeros(6, bytecode.INSTRUCTION)
    for row, (op, dst, a, b) in zip(
        code,
        [(Op.LOAD, 0, 0, 0), (Op.EXP, 1, 0, 0), (Op.SCALAR, 2, 2, 0), (Op.CAST, 3, 2, 0), (Op.MUL, 4, 1, 3), (Op.STORE, 0, 1, 4)],
        strict=True,
    ):
        row["op"], row["dst"], row["a"], row["b"] = op, dst, a, b
    return b"".join(part.tobytes() for part in (header, args, registers, code))


@dataclass
class Model:
    """What `write_blob` takes."""

    programs: list[EntryProgram]
    states: list[StateSpec]
    metadata: dict[str, Any]
    assets: dict[str, bytes] = field(default_factory=dict)

    def arguments(self) -> tuple[Any, ...]:
        return self.programs, self.states, self.metadata, self.assets


class Draft:
    """Collects the tasks of one entry; local buffers are stacked, and each task waits for the one before it."""

    def __init__(self, entry: str, rows: int, capacity: int) -> None:
        self.entry, self.rows, self.capacity = entry, rows, capacity
        self.tasks: list[Task] = []
        self.offsets: dict[Buffer, int] = {}
        self.top = {"cmx": 0, "ddr": 0}

    def local(self, name: str, nbytes: int, memory: str = "cmx") -> Buffer:
        buffer = Buffer(name, memory, nbytes)
        self.offsets[buffer] = self.top[memory]
        self.top[memory] += -(-nbytes // 64) * 64
        return buffer

    def add(self, engine: str, op: Any, reads: list[Region], writes: list[Region], key: tuple[Any, ...], when: When | None = None) -> None:
        node, kernel, coord, stage = key
        self.tasks.append(Task(engine, op, tuple(reads), tuple(writes), Origin(self.entry, node, kernel, coord, stage), when))

    def program(self) -> EntryProgram:
        count = len(self.tasks)
        barriers = [Barrier(i % 16, 1, 1) for i in range(count - 1)]
        sync = [
            Sync(
                (((i - 1) % 16),) if i else (),
                ((i % 16),) if i < count - 1 else (),
                min(i + 1, count - 1),
            )
            for i in range(count)
        ]
        return EntryProgram(
            self.entry, self.rows, self.capacity, self.tasks, [t.engine for t in self.tasks], self.offsets, barriers, sync,
            dict(self.top), {"cmx": 1 << 20},
        )  # fmt: skip


def body(draft: Draft, weights: list[tuple[Buffer, Buffer]], cos: Buffer, tile: int) -> None:
    """Layers that embed, multiply in tiles of `tile` output channels, exponentiate, and append to the cache."""
    rows = draft.rows
    ids = Buffer(f"{draft.entry}.in.input_ids", "ddr", rows * 4, Role.INPUT)
    hidden = Buffer(f"{draft.entry}.out.hidden", "ddr", rows * 16 * 2, Role.OUTPUT)
    index = draft.local("index", rows * 4)
    x = draft.local("x", rows * 16 * 2)
    draft.add("dma.in", CopyOp(valid=StepValue("n_new")), [view(ids, (rows,), DType.I32)], [view(index, (rows,), DType.I32)],
              ("/embed", "gather", (0,), "load.index"))  # fmt: skip
    draft.add("dma.in", GatherOp(24), [view(weights[0][0], (24, 16)), view(index, (rows,), DType.I32)], [view(x, (rows, 16))],
              ("/embed", "gather", (0,), "load.rows"))  # fmt: skip
    table_rows = draft.local("cos", rows * WIDTH * 2)
    draft.add("dma.in", CopyOp(shift_src="n_past"), [view(cos, (rows, WIDTH))], [view(table_rows, (rows, WIDTH))],
              ("/rotary", "copy", (), "load.cos"))  # fmt: skip
    for layer, (w, bias) in enumerate(weights):
        node = f"/layers.{layer}"
        state = Buffer(f"state.k{layer}", "ddr", HEADS * SLOTS * WIDTH * 2, Role.STATE)
        y = draft.local(f"y{layer}", rows * 24 * 2)
        for j in range(0, 24, tile):
            n = min(tile, 24 - j)
            local_w = draft.local(f"w{layer}.{j}", n * 16 * 2)
            local_t = draft.local(f"t{layer}.{j}", n * 8)
            key = (f"{node}/proj", "matmul", (0, j // tile))
            draft.add("dma.in", CopyOp(), [view(w, (n, 16), offset=j * 32)], [view(local_w, (n, 16))], (*key, "load.w"))
            draft.add("dma.in", CopyOp(), [view(bias, (n, 2), DType.F32, offset=j * 8)], [view(local_t, (n, 2), DType.F32)],
                      (*key, "load.table"))  # fmt: skip
            draft.add("dpu", MmaOp(table=True, scale=0.5), [view(x, (rows, 16)), view(local_w, (n, 16)), view(local_t, (n, 2), DType.F32)],
                      [view(y, (rows, n), offset=j * 2, stride=(48, 2))], (*key, "mma"))  # fmt: skip
        past = draft.local(f"past{layer}", HEADS * 16 * WIDTH * 2)
        kv = (SLOTS * WIDTH * 2, WIDTH * 2, 2)
        draft.add("dma.in", CopyOp(row_dim=1, valid=StepValue("n_past")), [view(state, (HEADS, 16, WIDTH), stride=kv)],
                  [view(past, (HEADS, 16, WIDTH))], (f"{node}/attn", "attention", (0,), "load.past"), When("n_past", 0))  # fmt: skip
        new = draft.local(f"new{layer}", HEADS * rows * WIDTH * 2)
        draft.add("shave", CallOp("exp", exp_code((rows, 16)), (("r", 0), ("w", 0), ("i", 3))),
                  [view(x, (rows, 16))], [view(new, (rows, 16))], (f"{node}/attn", "attention", (0,), "vector"))  # fmt: skip
        draft.add("dma.out", CopyOp(row_dim=1, valid=StepValue("n_new"), shift_dst="n_past"), [view(new, (HEADS, rows, WIDTH))],
                  [view(state, (HEADS, rows, WIDTH), stride=kv)], (f"{node}/attn", "attention", (0,), "store.k"))  # fmt: skip
    spill = draft.local("spill", rows * 16 * 2, "ddr")
    draft.add("dma.out", FillOp(0x3C00), [], [view(spill, (rows, 16))], ("", "fill", (), "fill"))
    draft.add("shave", CallOp("exp", exp_code((rows, 16)), (("r", 0), ("w", 0), ("s", "n_new"))), [view(x, (rows, 16))],
              [view(x, (rows, 16))], ("/norm", "map", (0,), "vector"))  # fmt: skip
    draft.add("dma.out", CopyOp(), [view(x, (rows, 16))], [view(hidden, (rows, 16))], ("/norm", "map", (0,), "store"))


def model(tile: int = 8, layers: int = 2, edit: Callable[[list[EntryProgram]], None] | None = None) -> Model:
    """Two entries over the same weights and cache. tile: output channels of one matmul task, changes generate alone."""
    weights = [
        (const(f"w{i}", (24, 16), seed=i), const(f"bias{i}", (24, 2), DType.F32, seed=100)) for i in range(layers)
    ]
    cos = const("cos", (20, WIDTH), seed=200)
    programs = []
    for name, rows, capacity, width in (("prefill", ROWS, 16, 8), ("generate.16", 1, 16, tile)):
        draft = Draft(name, rows, capacity)
        body(draft, weights, cos, width)
        programs.append(draft.program())
    if edit is not None:
        edit(programs)
    states = [
        StateSpec(f"k{i}", (1, HEADS, SLOTS, WIDTH), DType.F16, "append", 2,
                  np.full((1, HEADS, SLOTS, WIDTH), i, "<f2") if i else None, f"state.k{i}", f"next.k{i}", "rows are added")
        for i in range(layers)
    ]  # fmt: skip
    entries = [
        EntryPorts(
            p.entry, p.rows, p.capacity,
            (Port("input_ids", DType.I32, (1, p.rows), "i64"),), (Port("hidden", DType.F16, (1, p.rows, 16), "f32"),),
        )
        for p in programs
    ]  # fmt: skip
    llm = LlmInfo(24, 16, ROWS, 16, (16,), "input_ids", "hidden", "logits")
    metadata = build_metadata(entries, states, precision="f16", target="npu40xx", llm=llm, stop_ids=(2,))
    return Model(programs, states, metadata, {"tokenizer.json": b"{}"})
