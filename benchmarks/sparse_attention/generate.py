"""The kernel as a list of tasks: software-pipelined over the blocks of all queries, which follow each other.

Step i of a vector unit: columns of block i + 3, softmax of i + 1, check of the indices of i + 6, scaling of the sums
before i, gather of i + 5, skip flag of i + 1, fetch of the indices of i + 7. The cube computes the scores of i + 1
before the sums of i, and so those of a query's first block before the last sums of the query before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.sparse_attention.code import code_of
from benchmarks.sparse_attention.cube import CubeUnit
from benchmarks.sparse_attention.memory import DRAINED, CubeMemory, DeviceMemory, VectorMemory
from benchmarks.sparse_attention.order import CHECK, COLUMNS, FETCH, GATHER, SCORES
from benchmarks.sparse_attention.problem import VECTORS, Problem
from benchmarks.sparse_attention.vector import VectorUnit
from npuc.tasks.graph import TaskGraph
from npurt.target import Target


def generate(problem: Problem, target: Target) -> TaskGraph:
    """The tasks of one core in an order that is right one after the other; each queue keeps it."""
    return _Kernel(problem, target).run()


class _Kernel:
    def __init__(self, problem: Problem, target: Target) -> None:
        self.problem, self.last = problem, problem.queries * problem.blocks - 1
        self.graph = TaskGraph("main", rows=problem.queries)
        cube, device = CubeMemory(problem, target), DeviceMemory(problem)
        memories = [VectorMemory(problem, target, number) for number in range(VECTORS)]
        code, tasks = code_of(problem), self.graph.tasks
        self.cube = CubeUnit(problem, tasks, cube, memories, device)
        self.vectors = [VectorUnit(problem, code, n, tasks, memories, cube, device) for n in range(VECTORS)]

    def run(self) -> TaskGraph:
        self.vectors[0].begin()
        self._fetch(self.vectors[0], 0)
        self._fetch(self.vectors[1], 0)
        self.vectors[1].begin()
        for step in range(-CHECK, self.last + 1):
            self._step(step)
        for tile in range(self.problem.tiles):
            self._drain(self.last + 1, [tile])
            self._finish(self.problem.queries - 1, [tile])
        return self.graph

    def _step(self, i: int) -> None:
        p, ahead = self.problem, i + SCORES
        query, place = divmod(i, p.blocks)
        ends = i > 0 and place == 0  # the query before is complete
        late_start = i > 0 and place < 4  # its results have kept the vector units, whose weights the cube needs first
        self._load_query(ahead)
        if not late_start:
            self._columns(i + COLUMNS)
        if 0 <= ahead <= self.last:
            self.cube.scores(ahead)
        weights = self.cube.load_weights(i) if i >= 0 else None
        # two tiles of sums fit beside the vector units' work, the others have to wait for it
        early, late = (range(DRAINED), range(DRAINED, p.tiles)) if i > 0 else (range(0), range(0))
        self._drain(i, early)
        if ends:
            self._finish(query - 1, early)
        if 0 <= ahead <= self.last:
            self.cube.scores_out(ahead)
            for vector in self.vectors:
                vector.softmax(ahead)
        if ends:
            self._drain(i, late)
            self._finish(query - 1, late)
        if late_start:
            self._columns(i + COLUMNS)
        self._check_indices(i + CHECK)
        if not ends:
            self._rescale(i, [*early, *late])
        if weights is not None:
            if place == p.blocks - 1:
                self._denominators(query)
            for tile in range(p.tiles):
                self.cube.values(i, weights, tile)
        for vector in self.vectors:
            stages = [self._gather, self._skip_flag]
            for stage in reversed(stages) if p.flag_first else stages:
                stage(vector, i)
            self._fetch(vector, i + FETCH)

    def _columns(self, block: int) -> None:
        if 0 <= block <= self.last:
            for vector in self.vectors:
                vector.to_fractals(block)

    def _drain(self, i: int, tiles: Sequence[int]) -> None:
        """Sums of the blocks before i: where a flag says so, or because the query ends there."""
        for tile in tiles:
            self.cube.drain(i, tile, last=i % self.problem.blocks == 0)

    def _rescale(self, i: int, tiles: Sequence[int]) -> None:
        for tile in tiles:
            for vector in self.vectors:
                vector.rescale(i, tile)
            if tile + DRAINED < self.problem.tiles:
                self._drain(i, [tile + DRAINED])

    def _denominators(self, query: int) -> None:
        for vector in self.vectors:
            vector.denominator(query)

    def _finish(self, query: int, tiles: Sequence[int]) -> None:
        """Results of a query whose sums are complete."""
        for tile in tiles:
            for vector in self.vectors:
                vector.final(query, tile)

    def _load_query(self, block: int) -> None:
        """The first query before its first block, each other one in the middle of the query before it."""
        query, place = divmod(block, self.problem.blocks)
        if block == 0:
            self.cube.load_query(0)
        if block >= 0 and place == self.problem.blocks // 2 and query + 1 < self.problem.queries:
            self.cube.load_query(query + 1)

    def _check_indices(self, block: int) -> None:
        """Checks the batch that begins with a block."""
        for vector in self.vectors:
            if 0 <= block <= self.last and vector.batch_of(block)[1] == 0:
                vector.check(vector.batch_of(block)[0])

    def _fetch(self, vector: VectorUnit, block: int) -> None:
        """Fetches the batch that begins with a block."""
        if 0 <= block <= self.last and vector.batch_of(block)[1] == 0:
            vector.fetch(vector.batch_of(block)[0])

    def _gather(self, vector: VectorUnit, i: int) -> None:
        if 0 <= i + GATHER <= self.last:
            vector.gather(i + GATHER)

    def _skip_flag(self, vector: VectorUnit, i: int) -> None:
        ahead = i + SCORES
        if 0 <= ahead <= self.last and ahead % self.problem.blocks:
            vector.skip_flag(ahead)
