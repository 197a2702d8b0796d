"""Random task programs: well-typed views that overlap, reuse memory, are cut, joined, copied and converted."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from npurt.abi.blob import Reloc
from npurt.abi.bytecode import ArgMode, Op
from npurt.abi.dtypes import DType
from npurt.abi.records import Predicate
from npurt.shave import ProgramBuilder
from tests.unit.npurt.images import CMX, TinyBlob

F16, F32 = DType.F16, DType.F32
CMX_BYTES, STATE_ROWS, WIDTH = 1024, 16, 8
VECTOR_OPS = (Op.ADD, Op.MUL, Op.SUB, Op.MAX)


@dataclass(frozen=True)
class Tensor:
    """A view [rows, columns] of the scratchpad whose elements are known to be of `dtype`."""

    offset: int
    dtype: DType
    rows: int
    columns: int
    stride: int

    @property
    def span(self) -> tuple[int, int]:
        return self.offset, self.offset + (self.rows - 1) * self.stride + self.columns * self.dtype.nbytes

    def part(self, rng: np.random.Generator) -> Tensor:
        """Some rows and columns of it."""
        top, left = int(rng.integers(self.rows)), int(rng.integers(self.columns))
        rows, columns = int(rng.integers(1, self.rows - top + 1)), int(rng.integers(1, self.columns - left + 1))
        offset = self.offset + top * self.stride + left * self.dtype.nbytes
        return replace(self, offset=offset, rows=rows, columns=columns)


class RandomProgram:
    """Builds a blob of `count` tasks that run one after the other."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = np.random.default_rng(seed)
        weights = self.rng.normal(size=(2, 512)).astype(np.float32)
        self.weights = weights[0].tobytes() + weights[1].astype(np.float16).tobytes()
        state = self.pick(F16, F32)
        self.tiny = TinyBlob(
            rows=4, capacity=STATE_ROWS - 4, cmx=CMX_BYTES, scratch=2048, weights=self.weights,
            inputs={"x": (F32, (4, WIDTH)), "h": (F16, (4, WIDTH))}, states={"k": (state, (STATE_ROWS, WIDTH), None)},
        )  # fmt: skip
        self.state = state
        self.known: list[Tensor] = []
        self.tasks: list[tuple[str, tuple, dict]] = []
        self.parked: list[tuple[int, Tensor]] = []
        self.only_f32 = False
        moves = (self.load, self.load, self.copy, self.product, self.product, self.tiles, self.tiles, self.vector,
                 self.vector, self.past, self.append, self.park, self.fetch, self.bits)  # fmt: skip
        self.load()
        while len(self.tasks) < count:
            moves[int(self.rng.integers(len(moves)))]()
        self.finish()

    def dma(self, source: str, target: str, rows: int, columns: int, dtype: DType, **fields) -> None:
        """A copy; src and dst: where a tensor lies, for the sides in the scratchpad."""
        for side in ("src", "dst"):
            tensor = fields.pop(side, None)
            if tensor is not None:
                item = dtype.nbytes if side == "src" else fields.get("dst_type", dtype).nbytes
                fields[f"{side}_offset"], fields[f"{side}_stride"] = tensor.offset, (0, 0, tensor.stride, item)
        self.tasks.append(("dma", (source, target, (rows, columns), dtype), fields))

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def place(self, dtype: DType, rows: int, columns: int) -> Tensor:
        """A new tensor somewhere, in the place of whatever overlaps it."""
        dtype = F32 if self.only_f32 else dtype
        stride = columns * dtype.nbytes + int(self.pick(0, 0, 16))
        tensor = Tensor(0, dtype, rows, columns, stride)
        free = (CMX_BYTES - tensor.span[1]) // 16
        return replace(tensor, offset=16 * int(self.rng.integers(free + 1)))

    def wrote(self, tensor: Tensor) -> None:
        low, high = tensor.span
        self.known = [other for other in self.known if other.span[1] <= low or high <= other.span[0]]
        self.known.append(tensor)

    def some(self) -> Tensor:
        tensor = self.known[int(self.rng.integers(len(self.known)))]
        return tensor.part(self.rng) if self.rng.random() < 0.3 else tensor

    def load(self) -> None:
        source, dtype = self.pick(("x", F32), ("h", F16), ("weights", F32), ("weights", F16))
        rows, offset = int(self.rng.integers(1, 5)), 0
        if source == "weights":
            offset = 32 * int(self.rng.integers(8)) if dtype is F32 else 2048 + 16 * int(self.rng.integers(8))
        target = self.place(self.pick(dtype, dtype, F32, F16), rows, WIDTH)
        self.dma(source, "cmx", rows, WIDTH, dtype, src_offset=offset, dst=target, dst_type=target.dtype)
        self.wrote(target)

    def copy(self) -> None:
        source = self.some()
        target = self.place(self.pick(source.dtype, source.dtype, F32, F16), source.rows, source.columns)
        if target.span[0] < source.span[1] and source.span[0] < target.span[1]:
            return
        self.dma("cmx", "cmx", source.rows, source.columns, source.dtype, src=source, dst=target, dst_type=target.dtype)
        self.wrote(target)

    def multiply(self, a: Tensor, b: Tensor, c: Tensor, adds: bool, **fields) -> None:
        offsets = (a.offset, b.offset, c.offset)
        strides = {"a_stride": a.stride, "b_stride": b.stride, "c_stride": c.stride}
        self.tasks.append(("dpu", (a.rows, b.rows, a.columns, (a.dtype, b.dtype, c.dtype), offsets), {
            "flags": int(adds), "scale": 0.25, **strides, **fields}))  # fmt: skip

    def product(self) -> None:
        a, b = self.some(), self.some()
        k = min(a.columns, b.columns)
        a, b = replace(a, columns=k), replace(b, columns=k)
        c = self.place(self.pick(F32, F16), a.rows, b.rows)
        if any(c.span[0] < x.span[1] and x.span[0] < c.span[1] for x in (a, b)):
            return
        self.multiply(a, b, c, adds=False)
        self.wrote(c)

    def disturb(self) -> None:
        """Between two tiles: something that may read or overwrite any of their operands, as float32."""
        if self.rng.random() < 0.5:
            self.only_f32 = True
            self.pick(self.copy, self.product, self.vector)()
            self.only_f32 = False

    def tiles(self) -> None:
        """Products that are neighbours along n or along k, with a load of the tile before each."""
        wide = [tensor for tensor in self.known if tensor.columns == WIDTH and tensor.dtype is F32]
        if not wide:
            return
        a = self.pick(*wide)
        count, along_k = int(self.rng.integers(2, 4)), self.rng.random() < 0.5
        width = WIDTH // 2 if along_k else WIDTH
        c = self.place(F32, a.rows, 4 if along_k else 4 * count)
        tile = self.place(F32, 4, width)
        if len({*range(*c.span)} & {*range(*a.span)}) or {*range(*tile.span)} & ({*range(*c.span)} | {*range(*a.span)}):
            return
        for number in range(2 if along_k else count):
            offset = 4 * width * number if along_k else 128 * number
            self.dma("weights", "cmx", 4, width, F32, src_offset=offset, src_stride=(0, 0, 32, 4), dst=tile)
            self.wrote(tile)
            self.disturb()
            part = replace(a, columns=width, offset=a.offset + (4 * width * number if along_k else 0))
            into = replace(c, columns=4, offset=c.offset + (0 if along_k else 16 * number))
            self.multiply(part, tile, into, adds=along_k and number > 0)
            self.wrote(into)
            self.disturb()
        self.wrote(c)

    def vector(self) -> None:
        a, b = self.some(), self.some()
        rows, columns = min(a.rows, b.rows), min(a.columns, b.columns)
        a, b = replace(a, rows=rows, columns=columns), replace(b, rows=rows, columns=columns)
        kind = self.pick("binary", "silu", "norm", "softmax", "twice", "twice")
        out = replace(a, dtype=a.dtype) if self.rng.random() < 0.3 else self.place(self.pick(F32, F16), rows, columns)
        p = ProgramBuilder()
        x, y = (p.arg(ArgMode.IN, t.dtype, (rows, columns), (t.stride, t.dtype.nbytes)) for t in (a, b))
        z = p.arg(ArgMode.OUT, out.dtype, (rows, columns), (out.stride, out.dtype.nbytes))
        if kind != "twice":
            p.store(z, _expression(p, kind, p.load(x), p.load(y), self.pick(*VECTOR_OPS)))
            self.tasks.append(("shave", (p.bytes(), [(CMX, 0, t.offset) for t in (a, b, out)]), {}))
            self.wrote(out)
            return
        # two results, the first of which may lie on operands of the second
        other = self.place(out.dtype, rows, columns)
        if {*range(*other.span)} & {*range(*out.span)}:
            return
        w = p.arg(ArgMode.OUT, other.dtype, (rows, columns), (other.stride, other.dtype.nbytes))
        first, second = p.load(x), p.load(y)
        total = p.op(Op.ADD, first, second)
        if self.rng.random() < 0.5:
            p.store(z, total)
            p.store(w, p.op(Op.SUB, first, p.op(Op.NEG, second)))
        else:
            product = p.op(Op.MUL, first, second)
            p.store(z, total)
            p.store(w, product)
        self.tasks.append(("shave", (p.bytes(), [(CMX, 0, t.offset) for t in (a, b, out, other)]), {}))
        self.wrote(out)
        self.wrote(other)

    def bits(self) -> None:
        """A copy as 32-bit words, whatever they hold."""
        source = self.some()
        width = source.columns * source.dtype.nbytes
        if width % 4 or source.offset % 4 or source.stride % 4 or self.only_f32:
            return
        target = self.place(source.dtype, source.rows, source.columns)
        if target.span[0] < source.span[1] and source.span[0] < target.span[1]:
            return
        self.dma("cmx", "cmx", source.rows, width // 4, DType.I32, src=source, dst=target)
        self.wrote(target)

    def past(self) -> None:
        """The first n_past rows of the state, as b of a product."""
        first, rows = int(self.pick(0, 4)), 4
        keys = self.place(self.state, rows, WIDTH)
        pred = {"pred": Predicate.PAST_GT, "pred_value": first} if self.rng.random() < 0.6 else {}
        if pred and self.rng.random() < 0.3:
            pred = {"pred": Predicate.PAST_IN, "pred_value": first, "pred_base": int(self.pick(0, 1, 3))}
        a = self.some()
        c = self.place(F32, a.rows, rows)
        spans = [{*range(*t.span)} for t in (keys, a, c)]
        if a.columns != WIDTH or spans[0] & spans[1] or spans[2] & (spans[0] | spans[1]):
            return
        item = self.state.nbytes
        always = bool(pred) and self.rng.random() < 0.4  # the product runs on what the load has left, too
        if always:
            self.dma("weights", "cmx", rows, WIDTH, F32, dst_type=self.state, dst=keys)
        if pred:  # what a product that does not run leaves behind has to be known
            self.dma("weights", "cmx", a.rows, rows, F32, dst=c)
        valid = {Reloc.STEP_VALID: ("step.n_past", int(self.pick(0, 0, 2)) - first)}
        self.dma("k", "cmx", rows, WIDTH, self.state, src_offset=first * WIDTH * item, dst=keys, step=valid, **pred)
        if self.rng.random() < 0.5:
            self.append()
        self.multiply(a, keys, c, adds=False, **({} if always else pred))
        if not pred or always:
            self.wrote(keys)
        else:
            low, high = keys.span
            self.known = [other for other in self.known if other.span[1] <= low or high <= other.span[0]]
        self.wrote(c)

    def append(self) -> None:
        tall = [tensor for tensor in self.known if tensor.columns == WIDTH and tensor.rows == 4]
        if not tall:
            return
        source = self.pick(*tall)
        step = {Reloc.STEP_DST: ("step.n_past", 0), Reloc.STEP_VALID: ("step.n_new", 0)}
        self.dma("cmx", "k", 4, WIDTH, source.dtype, src=source, dst_type=self.state, step=step)

    def park(self) -> None:
        """To the scratch in DDR."""
        source, slot = self.some(), int(self.rng.integers(4))
        self.dma("cmx", "scratch", source.rows, source.columns, source.dtype, src=source, dst_offset=512 * slot)
        self.parked = [(at, tensor) for at, tensor in self.parked if at != slot]
        self.parked.append((slot, source))

    def fetch(self) -> None:
        if not self.parked:
            return
        slot, source = self.pick(*self.parked)
        target = self.place(source.dtype, source.rows, source.columns)
        self.dma("scratch", "cmx", source.rows, source.columns, source.dtype, src_offset=512 * slot, dst=target)
        self.wrote(target)

    def finish(self) -> None:
        """Stores everything that is known, and puts the tasks in one order by barriers."""
        for number, tensor in enumerate(self.known):
            self.tiny.outputs[f"y{number}"] = (tensor.dtype, (tensor.rows, tensor.columns))
            self.dma("cmx", f"y{number}", tensor.rows, tensor.columns, tensor.dtype, src=tensor)
        last = len(self.tasks) - 1
        for number, (kind, arguments, fields) in enumerate(self.tasks):
            sync = {"wait": ((number - 1) % 64,) if number else (), "post": (number % 64,) if number < last else ()}
            sync["start_after"] = min(number + 1, last)
            if kind == "dma" and arguments[1] == "cmx":
                sync["queue"] = 0
            getattr(self.tiny, kind)(*arguments, **fields, **sync)
        self.tiny.barriers = [(number % 64, 1, 1) for number in range(last)]


def _expression(p: ProgramBuilder, kind: str, x, y, op: Op):
    if kind == "binary":
        return p.op(op, x, y)
    if kind == "silu":
        return p.op(Op.MUL, p.op(Op.MUL, x, p.op(Op.SIGMOID, x)), y)
    if kind == "norm":
        mean = p.reduce(Op.SUM, p.op(Op.MUL, x, x), 1)
        return p.op(Op.MUL, p.op(Op.MUL, x, p.op(Op.RSQRT, p.op(Op.ADD, mean, p.const(1.0, F32)))), y)
    shifted = p.op(Op.EXP, p.op(Op.SUB, x, p.reduce(Op.RMAX, x, 1)))
    return p.op(Op.DIV, shifted, p.reduce(Op.SUM, shifted, 1))
