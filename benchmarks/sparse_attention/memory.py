"""Where everything lies: buffers of device memory, and hand-placed rings of the memories of one core."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.sparse_attention.order import CHECK
from benchmarks.sparse_attention.problem import TILE, TYPE, VECTORS, Problem
from npuc.tasks.graph import Buffer, Region, Role
from npurt.abi.dtypes import DType
from npurt.target import Target

GATHERED, DRAINED, BLOCKS, OPERANDS = 3, 2, 4, 4
"""Rings: gathered blocks and drained tiles of a vector unit; blocks in L1, tiles in L0A and in L0B."""


def region(
    buffer: Buffer, dtype: DType, shape: Sequence[int], *, at: int = 0, stride: Sequence[int] | None = None
) -> Region:
    """at: bytes. stride: bytes, None for row-major without gaps."""
    if stride is None:
        steps, step = [], dtype.nbytes
        for extent in reversed(shape):
            steps.append(step)
            step *= extent
        stride = steps[::-1]
    return Region(buffer, at, dtype, tuple(shape), tuple(stride))


class Stack:
    """Places buffers of one memory one behind the other, from `at` on. suffix: of their names."""

    def __init__(self, memory: str, align: int, at: int = 0, suffix: str = "") -> None:
        self.memory, self.align, self.at, self.suffix = memory, align, at, suffix

    def take(self, name: str, nbytes: int) -> Buffer:
        self.at = -(-self.at // self.align) * self.align
        found = Buffer(name + self.suffix, self.memory, nbytes, align=self.align, pinned=self.at)
        self.at += nbytes
        return found

    def ring(self, name: str, nbytes: int, count: int) -> list[Buffer]:
        return [self.take(f"{name}{number}", nbytes) for number in range(count)]


class VectorMemory:
    """The unified buffer of vector unit `number`."""

    def __init__(self, problem: Problem, target: Target, number: int) -> None:
        stack = Stack(f"ub.{number}", target.memories["ub"].align, suffix=f".{number}")
        column, fetched = problem.rows * 4, problem.fetched
        most = -(-CHECK * problem.block // problem.batch) + 1  # batches of indices in use
        self.gathered = stack.ring("rows", fetched * problem.dim * TYPE.nbytes, GATHERED)
        self.columns = stack.take("columns", (fetched + problem.pad) * problem.dim * TYPE.nbytes)
        self.acc = stack.take("acc", problem.rows * problem.dim * 4)
        self.drained = stack.ring("drained", problem.rows * TILE * 4, DRAINED)
        self.scores = stack.take("scores", problem.rows * problem.block * 4)
        self.weights = stack.take("weights", problem.rows * problem.block * TYPE.nbytes)
        self.fetched = stack.take("fetched", problem.batch * 4)
        self.indices = stack.ring("indices", problem.batch * 4, most)
        self.lengths = stack.take("lengths", problem.queries * 4)
        self.sink = stack.take("sink", column)
        # of two queries in turn: the next one begins before the last one's results are out
        self.top, self.used, self.total = (stack.ring(name, column, 2) for name in ("top", "used", "total"))
        self.factor, self.flag = stack.ring("factor", column, 2), stack.ring("flag", 4, 2)
        self.fire, self.scaled = stack.take("fire", 4), stack.ring("scaled", 4, 2)
        self.denominator, self.top_out, self.lse = (stack.take(name, column) for name in ("denom", "topo", "lseo"))
        self.bytes = stack.at


class CubeMemory:
    """L1 and the buffers of the cube.

    queries, keys: of each place of the ring, the buffers that hold its channels in turn: two, one in each bank, or one.
    """

    def __init__(self, problem: Problem, target: Target) -> None:
        align, half = target.memories["l1"].align, target.memories["l1"].bytes // 2
        query, keys = (count * problem.dim * TYPE.nbytes for count in (problem.heads, problem.block))
        low, high = Stack("l1", align), Stack("l1", align, max(half, 0))
        if problem.split:
            self.queries = [[low.take(f"q{n}.lo", query // 2), high.take(f"q{n}.hi", query // 2)] for n in range(2)]
            self.keys = [[low.take(f"kv{n}.lo", keys // 2), high.take(f"kv{n}.hi", keys // 2)] for n in range(BLOCKS)]
        else:
            self.queries = [[low.take(f"q{n}", query)] for n in range(2)]
            self.keys = [[high.take(f"kv{n}", keys)] for n in range(BLOCKS)]
        self.weights = low.take("weights", problem.heads * problem.block * TYPE.nbytes)
        self.bytes = low.at + high.at - half
        fractal = target.memories["l0a"].align
        widest = max(problem.heads, problem.block)
        self.left = Stack("l0a", fractal).ring("a", problem.heads * max(TILE, problem.block) * TYPE.nbytes, OPERANDS)
        self.right = Stack("l0b", fractal).ring("b", widest * TILE * TYPE.nbytes, OPERANDS)
        sums = Stack("l0c", target.memories["l0c"].align)
        self.out = sums.take("o", problem.heads * problem.dim * 4)
        self.scores = sums.take("p", problem.heads * problem.block * 4)


class DeviceMemory:
    """What the caller binds."""

    def __init__(self, problem: Problem) -> None:
        def taken(name: str, count: int, dtype: DType, role: Role) -> Buffer:
            return Buffer(name, "ddr", count * dtype.nbytes, role)

        given, made, heads = Role.INPUT, Role.OUTPUT, problem.heads
        self.q = taken("q", problem.queries * heads * problem.dim, TYPE, given)
        self.kv = taken("kv", problem.keys * problem.dim, TYPE, given)
        self.indices = taken("indices", problem.queries * problem.topk, DType.I32, given)
        self.lengths = taken("topk_length", problem.queries, DType.I32, given)
        self.sink = taken("attn_sink", heads, DType.F32, given)
        self.out = taken("out", problem.queries * heads * problem.dim, TYPE, made)
        self.top = taken("max_logits", problem.queries * heads, DType.F32, made)
        self.lse = taken("lse", problem.queries * heads, DType.F32, made)


def too_large(problem: Problem, target: Target) -> list[str]:
    """What does not fit on a core, in words; nothing where all fits."""
    needs = {"ub": VectorMemory(problem, target, 0).bytes, "l1": CubeMemory(problem, target).bytes}
    operand = max(problem.heads, problem.block) * TILE * TYPE.nbytes * OPERANDS
    needs |= {"l0a": operand, "l0b": operand}
    needs["l0c"] = problem.heads * (problem.dim + problem.block) * 4
    return [
        f"{name} needs {size} B and has {target.memories[name].bytes}"
        for name, size in needs.items()
        if size > target.memories[name].bytes
    ]


__all__ = ["VECTORS", "CubeMemory", "DeviceMemory", "VectorMemory", "region", "too_large"]
