"""The stages of a vector unit; each adds its tasks to the list. Blocks are counted over all queries."""

from __future__ import annotations

from benchmarks.sparse_attention.code import Code
from benchmarks.sparse_attention.memory import DRAINED, GATHERED, CubeMemory, DeviceMemory, VectorMemory, region
from benchmarks.sparse_attention.problem import FRACTAL, TILE, TYPE, Problem
from npuc.tasks.graph import Buffer, CallOp, CopyOp, FillOp, Flag, GatherOp, Origin, Region, Task
from npurt.abi.dtypes import DType

F32, I32 = DType.F32, DType.I32


class VectorUnit:
    """One vector unit of a core: its half of the heads, and its half of each block's keys."""

    def __init__(self, problem: Problem, code: Code, number: int, tasks: list[Task], memory: list[VectorMemory],
                 cube: CubeMemory, device: DeviceMemory) -> None:  # fmt: skip
        self.problem, self.code, self.number, self.tasks = problem, code, number, tasks
        self.memory, self.all, self.cube, self.device = memory[number], memory, cube, device

    def add(self, engine: str, op: CallOp | CopyOp | FillOp | GatherOp, reads: tuple[Region, ...],
            writes: tuple[Region, ...], stage: str, *coord: int, flag: Flag | None = None) -> None:  # fmt: skip
        origin = Origin(kernel="sparse attention", stage=stage, coord=(self.number, *coord))
        self.tasks.append(Task(f"{engine}.{self.number}", op, reads, writes, origin, flag=flag))

    def call(self, name: str, code: bytes, reads: tuple[Region, ...], writes: tuple[Region, ...], stage: str,
             *coord: int, args: str, start: int = 0, flag: Flag | None = None,
             engine: str = "vector") -> None:  # fmt: skip
        """args: the arguments in order: a letter r or w and the place among reads or writes, or i for `start`."""
        chosen: list[tuple[str, int | str]] = [
            ("i", start) if word == "i" else (word[0], int(word[1:])) for word in args.split()
        ]
        self.add(engine, CallOp(name, code, tuple(chosen)), reads, writes, stage, *coord, flag=flag)

    def begin(self) -> None:
        """What all queries share: the sinks, the lengths, and an accumulator that is zero."""
        memory, p = self.memory, self.problem
        rows = region(self.device.sink, F32, (p.rows,), at=self.number * p.rows * 4)
        self.add("mte2", CopyOp(), (rows,), (region(memory.sink, F32, (p.rows,)),), "load sink")
        lengths = region(self.device.lengths, I32, (p.queries,)), region(memory.lengths, I32, (p.queries,))
        self.add("mte2", CopyOp(), lengths[:1], lengths[1:], "load lengths")
        self.add("vector", FillOp(), (), (region(memory.acc, F32, (p.rows, p.dim)),), "clear o")

    def fetch(self, batch: int) -> None:
        memory, (query, first, count) = self.memory, self.batch(batch)
        place = region(self.device.indices, I32, (count,), at=(query * self.problem.topk + first) * 4)
        self.add("mte2", CopyOp(), (place,), (region(memory.fetched, I32, (count,)),), "fetch indices", batch)

    def check(self, batch: int) -> None:
        memory, whole, (query, first, _) = self.memory, (self.problem.batch,), self.batch(batch)
        reads = region(memory.fetched, I32, whole), region(memory.lengths, I32, (), at=query * 4)
        writes = (region(memory.indices[batch % len(memory.indices)], I32, whole),)
        self.call("check", self.code.check, reads, writes, "check indices", batch,
                  args="r0 r1 i w0", start=first)  # fmt: skip

    def gather(self, block: int) -> None:
        """This unit's keys of a block, a few rows in each request."""
        p, into = self.problem, self.memory.gathered[block % GATHERED]
        rows, line = p.rows_per_request, p.dim * TYPE.nbytes
        cache = region(self.device.kv, TYPE, (p.keys, p.dim))
        for at in range(0, p.fetched, rows):
            index = self._indices(block, (rows,), self.number * p.fetched + at)
            self.add("mte2", GatherOp(p.keys), (cache, index), (region(into, TYPE, (rows, p.dim), at=at * line),),
                     "gather", block, at)  # fmt: skip

    def to_fractals(self, block: int) -> None:
        """The rows as columns of fractals, in this unit's part of the block in L1."""
        p, memory, line = self.problem, self.memory, FRACTAL * TYPE.nbytes
        columns, keys = p.dim // FRACTAL, p.fetched
        stride = (keys + p.pad) * line, line, TYPE.nbytes
        rows = region(memory.gathered[block % GATHERED], TYPE, (keys, p.dim))
        turned = region(memory.columns, TYPE, (columns, keys, FRACTAL), stride=stride)
        self.call("nd2nz", self.code.nd2nz, (rows,), (turned,), "nd2nz", block, args="r0 w0")
        parts = self.cube.keys[block % len(self.cube.keys)]
        share = columns // len(parts)
        # each unit begins with another bank
        for at, part in rotated(list(enumerate(parts)), self.number):
            source = region(memory.columns, TYPE, (share, keys, FRACTAL), at=at * share * stride[0], stride=stride)
            sink = region(part, TYPE, (share, keys, FRACTAL), at=self.number * keys * line,
                          stride=(p.block * line, line, TYPE.nbytes))  # fmt: skip
            self.add("mte3", CopyOp(), (source,), (sink,), "keys to l1", block, at)

    def softmax(self, block: int) -> None:
        p, memory = self.problem, self.memory
        first, turn, odd = block % p.blocks == 0, block // p.blocks % 2, block % 2
        column, one = (p.rows, 1), (1, 1)
        state = (
            *(region(ring[turn], F32, column) for ring in (memory.top, memory.used, memory.total)),
            region(memory.scaled[turn], I32, one),
        )
        shape = p.block // FRACTAL, p.rows, FRACTAL
        weights = region(memory.weights, TYPE, shape)
        reads = region(memory.scores, F32, (p.rows, p.block)), self._indices(block, (1, p.block), 0)
        if first:
            self.call("softmax_first", self.code.softmax_first, reads, (*state, weights), "softmax", block,
                      args="r0 r1 w0 w1 w2 w3 w4")  # fmt: skip
        else:
            more = region(memory.factor[odd], F32, column), region(memory.fire, I32, one)
            self.call("softmax", self.code.softmax, (*reads, *state), (*state, weights, *more), "softmax", block,
                      args="r0 r1 w0 w1 w2 w3 w4 w5 w6")  # fmt: skip
        line = FRACTAL * TYPE.nbytes
        sink = region(self.cube.weights, TYPE, shape, at=self.number * p.rows * line,
                      stride=(p.heads * line, line, TYPE.nbytes))  # fmt: skip
        self.add("mte3", CopyOp(), (weights,), (sink,), "weights to l1", block)

    def skip_flag(self, block: int) -> None:
        fire, flag = region(self.memory.fire, I32, (1, 1)), region(self.memory.flag[block % 2], I32, (1, 1))
        self.call("skip_flag", self.code.skip_flag, (fire,), (flag,), "skip flag", block, args="r0 w0", engine="scalar")

    def rescale(self, block: int, tile: int) -> None:
        """Takes a drained tile of sums into the accumulator, and scales it."""
        p, memory = self.problem, self.memory
        acc = region(memory.acc, F32, (p.rows, TILE), at=tile * TILE * 4, stride=(p.dim * 4, 4))
        drained = region(memory.drained[tile % DRAINED], F32, (p.rows, TILE))
        factor = region(memory.factor[block % 2], F32, (p.rows, 1))
        self.call("rescale", self.code.rescale, (drained, factor, acc, *self.flags(block)), (acc,), "scale o", block,
                  tile, args="r0 r1 w0", flag=Flag((3, 4)))  # fmt: skip

    def denominator(self, query: int) -> None:
        p, memory = self.problem, self.memory
        column = (p.rows, 1)
        state = tuple(region(ring[query % 2], F32, column) for ring in (memory.top, memory.used, memory.total))
        out = tuple(region(buffer, F32, column) for buffer in (memory.denominator, memory.top_out, memory.lse))
        self.call("denominator", self.code.denominator, (*state, region(memory.sink, F32, column)), out, "denominator",
                  query, args="r0 r1 r2 r3 w0 w1 w2")  # fmt: skip
        at = (query * p.heads + self.number * p.rows) * 4
        for source, sink, name in ((memory.top_out, self.device.top, "store max"),
                                   (memory.lse, self.device.lse, "store lse")):  # fmt: skip
            self.add("mte3", CopyOp(), (region(source, F32, (p.rows,)),), (region(sink, F32, (p.rows,), at=at),),
                     name, query)  # fmt: skip

    def final(self, query: int, tile: int) -> None:
        """A drained tile of sums becomes results. The first ones leave by way of the columns' place, so that the next
        tiles can be drained at once, and the others from where they are."""
        p, memory = self.problem, self.memory
        acc = region(memory.acc, F32, (p.rows, TILE), at=tile * TILE * 4, stride=(p.dim * 4, 4))
        drained = memory.drained[tile % DRAINED]
        place = memory.columns, tile * p.rows * TILE * TYPE.nbytes
        buffer, first = place if tile + DRAINED < p.tiles else (drained, 0)
        result = region(buffer, TYPE, (p.rows, TILE), at=first)
        reads = region(drained, F32, (p.rows, TILE)), region(memory.denominator, F32, (p.rows, 1))
        scaled = tuple(region(each.scaled[query % 2], I32, (1,)) for each in self.all)
        self.call("final", self.code.final, (*reads, *scaled), (result,), "final o", query, tile, args="r0 r1 w0",
                  flag=Flag((2, 3), taken=False))  # fmt: skip
        self.call("final_sum", self.code.final_sum, (*reads, acc, *scaled), (result, acc), "final sum", query, tile,
                  args="r0 r1 w0 w1", flag=Flag((3, 4)))  # fmt: skip
        line = p.dim * TYPE.nbytes
        at = (query * p.heads + self.number * p.rows) * line + tile * TILE * TYPE.nbytes
        self.add("mte3", CopyOp(), (result,),
                 (region(self.device.out, TYPE, (p.rows, TILE), at=at, stride=(line, TYPE.nbytes)),),
                 "store o", query, tile)  # fmt: skip

    def flags(self, block: int) -> tuple[Region, ...]:
        """The skip flags of both units."""
        return tuple(region(memory.flag[block % 2], I32, (1,)) for memory in self.all)

    def batch(self, number: int) -> tuple[int, int, int]:
        """(query, its first index, how many) of a batch."""
        p = self.problem
        each = -(-p.topk // p.batch)
        query, at = divmod(number, each)
        return query, at * p.batch, min(p.batch, p.topk - at * p.batch)

    def batch_of(self, block: int) -> tuple[int, int]:
        """(batch, place in it) of the first index of a block."""
        p = self.problem
        query, at = divmod(block, p.blocks)
        inside, place = divmod(at * p.block, p.batch)
        return query * -(-p.topk // p.batch) + inside, place

    def _indices(self, block: int, shape: tuple[int, ...], first: int) -> Region:
        batch, place = self.batch_of(block)
        return region(self.memory.indices[batch % len(self.memory.indices)], I32, shape, at=(place + first) * 4)


def rotated(rows: list[tuple[int, Buffer]], by: int) -> list[tuple[int, Buffer]]:
    return rows[by % len(rows) :] + rows[: by % len(rows)]
