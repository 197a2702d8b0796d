"""The stages of the cube unit: queries in, scores out, weighted sums, and the sums' way to the vector units."""

from __future__ import annotations

from benchmarks.sparse_attention.memory import DRAINED, CubeMemory, DeviceMemory, VectorMemory, region
from benchmarks.sparse_attention.problem import FRACTAL, TILE, TYPE, Problem
from npuc.tasks.graph import Buffer, CopyOp, Flag, MmaOp, Origin, Region, Task
from npurt.abi.dtypes import DType

F32, I32 = DType.F32, DType.I32
LINE = FRACTAL * TYPE.nbytes


class CubeUnit:
    """The cube of a core with its transfers. Tiles of operands go round the rings of L0A and L0B."""

    def __init__(self, problem: Problem, tasks: list[Task], memory: CubeMemory, vectors: list[VectorMemory],
                 device: DeviceMemory) -> None:  # fmt: skip
        self.problem, self.tasks, self.memory, self.vectors, self.device = problem, tasks, memory, vectors, device
        self._lefts = self._rights = 0

    def add(self, engine: str, op: CopyOp | MmaOp, reads: tuple[Region, ...], writes: tuple[Region, ...], stage: str,
            *coord: int, flag: Flag | None = None) -> None:  # fmt: skip
        self.tasks.append(
            Task(engine, op, reads, writes, Origin(kernel="sparse attention", stage=stage, coord=coord), flag=flag)
        )

    def load_query(self, query: int) -> None:
        p = self.problem
        parts = self.memory.queries[query % 2]
        columns = p.dim // FRACTAL // len(parts)
        for at, part in enumerate(parts):
            first = query * p.heads * p.dim * TYPE.nbytes + at * columns * LINE
            source = region(self.device.q, TYPE, (columns, p.heads, FRACTAL), at=first,
                            stride=(LINE, p.dim * TYPE.nbytes, TYPE.nbytes))  # fmt: skip
            self.add("mte2", CopyOp(layout="nd2nz"), (source,), (region(part, TYPE, (columns, p.heads, FRACTAL)),),
                     "load q", query, at)  # fmt: skip

    def scores(self, block: int) -> None:
        """Queries times keys of a block, in steps of `TILE` channels that add up."""
        p = self.problem
        out = region(self.memory.scores, F32, (p.heads, p.block))
        for tile in range(p.tiles):
            query = tile_of(self.memory.queries[block // p.blocks % 2], tile, p, p.heads)
            left = self._left(query, "q to l0a", block, tile)
            right = self._right(block, tile, "k to l0b")
            a, b = region(left, TYPE, (p.heads, TILE)), region(right, TYPE, (p.block, TILE))
            reads = (a, b, out) if tile else (a, b)
            self.add("cube", MmaOp(accumulate=tile > 0), reads, (out,), "qk", block, tile)

    def scores_out(self, block: int) -> None:
        p = self.problem
        sources = tuple(
            region(self.memory.scores, F32, (p.rows, p.block), at=number * p.rows * p.block * 4)
            for number in range(len(self.vectors))
        )
        sinks = tuple(region(memory.scores, F32, (p.rows, p.block)) for memory in self.vectors)
        self.add("fix", CopyOp(), sources, sinks, "scores to ub", block)

    def load_weights(self, block: int) -> Buffer:
        """The softmax weights of a block, as the left operand of all its steps."""
        p = self.problem
        shape = p.heads, p.block // FRACTAL, FRACTAL
        source = region(self.memory.weights, TYPE, shape, stride=(LINE, p.heads * LINE, TYPE.nbytes))
        return self._left(source, "weights to l0a", block)

    def values(self, block: int, left: Buffer, tile: int) -> None:
        """Weights times values of a block for one tile of channels. Where a flag is set the sums have been drained, and
        begin anew."""
        p = self.problem
        right = self._right(block, tile, "v to l0b")
        a, b = region(left, TYPE, (p.heads, p.block)), region(right, TYPE, (p.block, TILE))
        out = region(self.memory.out, F32, (p.heads, TILE), at=tile * TILE * 4, stride=(p.dim * 4, 4))
        if block % p.blocks == 0:
            self.add("cube", MmaOp(b_kn=True), (a, b), (out,), "sv", block, tile)
            return
        flags = self.flags(block)
        self.add("cube", MmaOp(accumulate=True, b_kn=True), (a, b, out, *flags), (out,), "sv", block, tile,
                 flag=Flag((3, 4), taken=False))  # fmt: skip
        self.add("cube", MmaOp(b_kn=True), (a, b, *flags), (out,), "sv from zero", block, tile, flag=Flag((2, 3)))

    def drain(self, block: int, tile: int, *, last: bool) -> None:
        """A tile of sums to both vector units; not last: only where a flag of the block is set."""
        p = self.problem
        sources = tuple(
            region(self.memory.out, F32, (p.rows, TILE), at=(number * p.rows * p.dim + tile * TILE) * 4,
                   stride=(p.dim * 4, 4))
            for number in range(len(self.vectors))
        )  # fmt: skip
        sinks = tuple(region(memory.drained[tile % DRAINED], F32, (p.rows, TILE)) for memory in self.vectors)
        flags = () if last else self.flags(block)
        self.add("fix", CopyOp(), (*sources, *flags), sinks, "drain o", block, tile,
                 flag=None if last else Flag((2, 3)))  # fmt: skip

    def flags(self, block: int) -> tuple[Region, ...]:
        return tuple(region(memory.flag[block % 2], I32, (1,)) for memory in self.vectors)

    def _left(self, source: Region, stage: str, *coord: int) -> Buffer:
        left = self.memory.left[self._lefts % len(self.memory.left)]
        self._lefts += 1
        self.add("mte1", CopyOp(), (source,), (region(left, TYPE, source.shape),), stage, *coord)
        return left

    def _right(self, block: int, tile: int, stage: str) -> Buffer:
        right = self.memory.right[self._rights % len(self.memory.right)]
        self._rights += 1
        parts = self.memory.keys[block % len(self.memory.keys)]
        source = tile_of(parts, tile, self.problem, self.problem.block)
        self.add("mte1", CopyOp(), (source,), (region(right, TYPE, source.shape),), stage, block, tile)
        return right


def tile_of(parts: list[Buffer], tile: int, problem: Problem, rows: int) -> Region:
    """`TILE` channels of rows that lie as columns of fractals, read row by row: [rows, TILE / 16, 16]."""
    part, inside = divmod(tile, problem.tiles // len(parts))
    columns = TILE // FRACTAL
    return region(parts[part], TYPE, (rows, columns, FRACTAL), at=inside * columns * rows * LINE,
                  stride=(LINE, rows * LINE, TYPE.nbytes))  # fmt: skip
