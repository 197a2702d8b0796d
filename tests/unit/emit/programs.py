"""Small scheduled programs made by hand, with at least one task of every kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.graph.entry import LlmInfo, StateSpec
from npuc.report.metadata import EntryPorts, Port, build_metadata
from npuc.tasks.assemble import assemble
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
from npuc.tasks.program import Barrier, EntryProgram, Sync
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


def exp_code(shape: tuple[int, ...]) -> bytes:
    """Bytecode of out = exp(x) * scalar over one tile of f16 [rows, columns]."""
    f16 = f"f16[{shape[0]},{shape[1]}] stride [{shape[1] * 2},2]"
    f32 = f"f32[{shape[0]},{shape[1]}]"
    lines = ["program trip 1", f"arg 0 in {f16}", f"arg 1 out {f16}", "arg 2 scalar i32"]
    lines += [f"%0 {f32} = load arg0", f"%1 {f32} = exp %0", "%2 i32[] = scalar arg2", "%3 f32[] = cast %2"]
    return assemble([*lines, f"%4 {f32} = mul %1 %3", "store arg1 %4"])


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

    def add(
        self,
        engine: str,
        op: Any,
        reads: list[Region],
        writes: list[Region],
        key: tuple[Any, ...],
        when: When | None = None,
    ) -> None:
        node, kernel, coord, stage = key
        self.tasks.append(
            Task(engine, op, tuple(reads), tuple(writes), Origin(self.entry, node, kernel, coord, stage), when)
        )

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
            entry=self.entry,
            rows=self.rows,
            capacity=self.capacity,
            tasks=self.tasks,
            queues=[task.engine for task in self.tasks],
            offsets=self.offsets,
            barriers=barriers,
            sync=sync,
            peaks=dict(self.top),
            memory_bytes={"cmx": 1 << 20},
        )


def body(draft: Draft, weights: list[tuple[Buffer, Buffer]], cos: Buffer, tile: int) -> None:
    """Layers that embed, multiply in tiles of `tile` output channels, exponentiate, and append to the cache."""
    rows = draft.rows
    ids = view(Buffer(f"{draft.entry}.in.input_ids", "ddr", rows * 4, Role.INPUT), (rows,), DType.I32)
    hidden = view(Buffer(f"{draft.entry}.out.hidden", "ddr", rows * 32, Role.OUTPUT), (rows, 16))
    index = view(draft.local("index", rows * 4), (rows,), DType.I32)
    x = view(draft.local("x", rows * 32), (rows, 16))
    table_rows = view(draft.local("cos", rows * WIDTH * 2), (rows, WIDTH))
    key = ("/embed", "gather", (0,))
    draft.add("dma.in", CopyOp(valid=StepValue("n_new")), [ids], [index], (*key, "load.index"))
    draft.add("dma.in", GatherOp(24), [view(weights[0][0], (24, 16)), index], [x], (*key, "load.rows"))
    shift = CopyOp(shift_src="n_past")
    draft.add("dma.in", shift, [view(cos, (rows, WIDTH))], [table_rows], ("/rotary", "copy", (), "load.cos"))
    for layer, (w, bias) in enumerate(weights):
        matmul(draft, f"/layers.{layer}/proj", x, w, bias, tile)
        attention(draft, f"/layers.{layer}/attn", x, layer)
    spill = draft.local("spill", rows * 32, "ddr")
    draft.add("dma.out", FillOp(0x3C00), [], [view(spill, (rows, 16))], ("", "fill", (), "fill"))
    call = CallOp("exp", exp_code((rows, 16)), (("r", 0), ("w", 0), ("s", "n_new")))
    draft.add("shave", call, [x], [x], ("/norm", "map", (0,), "vector"))
    draft.add("dma.out", CopyOp(), [x], [hidden], ("/norm", "map", (0,), "store"))


def matmul(draft: Draft, node: str, x: Region, w: Buffer, bias: Buffer, tile: int) -> None:
    """[rows, 16] x [24, 16] in tiles of output channels, with a table."""
    rows = draft.rows
    y = draft.local(f"{node}.y", rows * 48)
    for j in range(0, 24, tile):
        n = min(tile, 24 - j)
        key = (node, "matmul", (0, j // tile))
        tile_w = view(draft.local(f"{node}.w{j}", n * 32), (n, 16))
        table = view(draft.local(f"{node}.t{j}", n * 8), (n, 2), DType.F32)
        draft.add("dma.in", CopyOp(), [view(w, (n, 16), offset=j * 32)], [tile_w], (*key, "load.w"))
        draft.add("dma.in", CopyOp(), [view(bias, (n, 2), DType.F32, j * 8)], [table], (*key, "load.table"))
        out = view(y, (rows, n), offset=j * 2, stride=(48, 2))
        draft.add("dpu", MmaOp(table=True, scale=0.5), [x, tile_w, table], [out], (*key, "mma"))


def attention(draft: Draft, node: str, x: Region, layer: int) -> None:
    """Loads the past, runs vector code, appends rows to the cache."""
    rows, kv = draft.rows, (SLOTS * WIDTH * 2, WIDTH * 2, 2)
    state = Buffer(f"state.k{layer}", "ddr", HEADS * SLOTS * WIDTH * 2, Role.STATE)
    past = view(draft.local(f"{node}.past", HEADS * 16 * WIDTH * 2), (HEADS, 16, WIDTH))
    new = draft.local(f"{node}.new", HEADS * rows * WIDTH * 2)
    key = (node, "attention", (0,))
    load = CopyOp(row_dim=1, valid=StepValue("n_past"))
    slots = view(state, (HEADS, 16, WIDTH), stride=kv)
    draft.add("dma.in", load, [slots], [past], (*key, "load.past"), When("n_past", 0))
    call = CallOp("exp", exp_code((rows, 16)), (("r", 0), ("w", 0), ("i", 3)))
    draft.add("shave", call, [x], [view(new, (rows, 16))], (*key, "vector"))
    store = CopyOp(row_dim=1, valid=StepValue("n_new"), shift_dst="n_past")
    target = view(state, (HEADS, rows, WIDTH), stride=kv)
    draft.add("dma.out", store, [view(new, (HEADS, rows, WIDTH))], [target], (*key, "store.k"))


def one_entry(draft: Draft) -> Model:
    """A model of one entry without states and ports."""
    metadata = build_metadata([EntryPorts(draft.entry, 0, 0, (), ())], [], precision="f16", target="npu40xx")
    return Model([draft.program()], [], metadata)


def model(tile: int = 8, layers: int = 2) -> Model:
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
    shape = (1, HEADS, SLOTS, WIDTH)
    initial = [np.full(shape, i, "<f2") if i else None for i in range(layers)]
    states = [
        StateSpec(f"k{i}", shape, DType.F16, "append", 2, initial[i], f"state.k{i}", f"next.k{i}", "rows are added")
        for i in range(layers)
    ]
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
