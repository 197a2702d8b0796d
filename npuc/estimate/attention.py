"""What attention costs in each form that the library has. The cheapest is taken, as the compiler does: by the mean of
an empty and a full cache, with the tile sizes that the library offers first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any

import onnx_ir as ir

from npuc.bound.traffic import fastest_route
from npuc.bound.work import Costs
from npuc.estimate.instructions import Classes, count_seconds
from npuc.estimate.streams import together
from npuc.graph.nodes import attributes, dims
from npuc.tile import ArrayType, dense
from npukernels import attention_sizes
from npurt.abi.dtypes import DType
from npurt.target.model import Target

WIDE = DType.F32.nbytes
TRIED = 3
"""Tile sizes of a form that the compiler times."""
KEY_BLOCK = 512
"""Rows of a cache that a form with all scores on chip loads at once."""
PANEL = 16
"""Rows and channels that the matrix engine computes at least: a product with ones sums weights in as many channels."""

CHOSEN: Classes = ("simple",)  # of a score that the mask may hide
WEIGHT: Classes = ("reduce", "simple", "special")  # the maximum of its row, the difference, exp
SHARE: Classes = ("reduce", "special")  # the sum of the row's weights, and the division by it
SOFTCAP: Classes = ("special", "simple")
SLOPE: Classes = ("simple", "simple")
DISTANCE: Classes = ("simple", "simple")  # of a row and column, where scores have slopes
SCALED: Classes = ("load", "simple", "store")  # of a sum of values: faded by a block, divided in the end


@dataclass(frozen=True)
class Heads:
    """One npuc.Attention. past: slots of the cache. floats: the type of operands. window: 0 for none."""

    heads: int
    groups: int
    rows: int
    depth: int
    width: int
    past: int
    floats: DType
    window: int
    softcap: bool
    sloped: bool
    sinks: bool
    ring: bool

    @classmethod
    def of(cls, node: ir.Node, floats: DType) -> Heads:
        q, k, v = (dims(value) for value in node.inputs[:3] if value is not None)
        past = node.inputs[3] if len(node.inputs) > 3 else None
        attrs = attributes(node)
        return cls(
            q[1], k[1], q[2], q[3], v[3], dims(past)[2] if past is not None else 0, floats,
            int(attrs.get("window", 0)), bool(attrs.get("softcap", 0.0)), len(attrs.get("slopes", ())) > 0,
            len(attrs.get("sinks", ())) > 0, bool(attrs.get("ring", 0)),
        )  # fmt: skip

    @property
    def share(self) -> int:
        """Query heads of a key head."""
        return self.heads // self.groups

    @property
    def score(self) -> DType:
        """As the library keeps scores: f16 beside f16, else f32."""
        return DType.F16 if self.floats is DType.F16 and not self.ring else DType.F32

    @property
    def lanes(self) -> int:
        """Bytes of a number in the widest float of the programs: slopes and sinks are f32."""
        return WIDE if self.sloped or self.sinks else self.score.nbytes

    @property
    def plain(self) -> bool:
        """Whether the matrix engine can hide slots of the cache, by a table."""
        return not self.softcap and not self.window

    def row_bytes(self, n_past: int) -> int:
        """Of keys and values of n_past slots."""
        return self.groups * n_past * (self.depth + self.width) * self.floats.nbytes

    def types(self) -> list[ArrayType | None]:
        """What the library's tile sizes follow: q, k_new, v_new, k_past."""
        shapes = [(self.heads, self.rows, self.depth), (self.groups, self.rows, self.depth),
                  (self.groups, self.rows, self.width)]  # fmt: skip
        past = dense(self.floats, (self.groups, self.past, self.depth)) if self.past else None
        return [*(dense(self.floats, shape) for shape in shapes), past]


@dataclass(frozen=True)
class Work:
    """matrix, vector: seconds of the engines. runs: of vector programs. parts: whose loads and computations overlap.
    cache: bytes of the past; loads: transfers of it. turns: parts in which one engine works while the other does."""

    matrix: float
    vector: float
    runs: int
    parts: int
    cache: int
    loads: int
    turns: int = 1

    def compute(self, launch: float) -> float:
        """Seconds of both engines. launch: of a vector program."""
        return together(self.matrix, self.vector + self.runs * launch, self.turns)


@dataclass(frozen=True)
class Attention:
    """Prices one node on one target."""

    heads: Heads
    costs: Costs
    target: Target

    def best(self, free: int, n_past: int) -> Work:
        """The work of the form that the compiler takes, with at most `free` bytes on chip. n_past: valid rows."""
        found = [(self._mean(form, sizes), n) for n, (form, sizes) in enumerate(self._offered(free))]
        form, sizes = list(self._offered(free))[min(found)[1]]
        return FORMS[form](self, sizes, min(n_past, self.heads.past))

    def _offered(self, free: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
        heads, types = self.heads, self.heads.types()
        whole = [each for each in attention_sizes.decomposed(types, {}, free) if self._local(each) <= free]
        yield from (("decomposed", sizes) for sizes in whole[:TRIED])
        if not heads.ring:
            yield from (("flash", sizes) for sizes in islice(attention_sizes.flash(types, {}, free), TRIED))
            yield from (("incremental", sizes) for sizes in islice(attention_sizes.incremental(types, {}, free), TRIED))
        if heads.ring and not whole:
            yield "decomposed", {"bm": 1, "groups": 1, "bk": PANEL}

    def _local(self, sizes: Mapping[str, Any]) -> int:
        return whole_bytes(self.heads, sizes["bm"], sizes["groups"], sizes["bk"])

    def _mean(self, form: str, sizes: Mapping[str, Any]) -> float:
        """Seconds alone, over an empty and a full cache."""
        route, vector = fastest_route(self.target, loads=True), self.target.engine_of("vector")
        total = 0.0
        for n_past in (0, self.heads.past):
            work = FORMS[form](self, sizes, n_past)
            total += max(work.compute(vector.launch), work.cache / route.rate + work.loads * route.latency)
        return total

    def _weights(self, count: float, extra: Classes, lanes: int) -> float:
        """Scores that are read, become weights and are stored."""
        heads = self.heads
        classes = ("load", *(SOFTCAP if heads.softcap else ()), *(SLOPE if heads.sloped else ()), *WEIGHT, *extra)
        return self._seconds(classes, count, lanes) + self._seconds(("store",), count, heads.score.nbytes)

    def _mask(self, count: float, past: bool) -> float:
        """Of rows and columns: a new row is not before its own, a slot exists; each is a comparison, and each after the
        first is joined. The heads of a run share it."""
        heads = self.heads
        classes = ("simple",) * (1 + past + 2 * bool(heads.window))
        return self._seconds((*classes, *(DISTANCE if heads.sloped else ())), count, heads.lanes)

    def _seconds(self, classes: Classes, count: float, item: int) -> float:
        return count_seconds(self.costs.vector, classes, count, item)

    def _product(self, batch: int, m: int, n: int, k: int) -> float:
        """`batch` products [m, k] [n, k]: their MACs, or their operands and results if those take longer."""
        macs = self.costs.macs(m, batch * m * n * k)
        rate = self.costs.matrix.operand_rate
        moved = batch * (m * k + n * k + m * n) * self.costs.item
        return max(macs, moved / rate) if rate else macs

    def whole(self, sizes: Mapping[str, Any], n_past: int) -> Work:
        """All scores of some rows, then one softmax over all columns, whatever the mask hides."""
        heads, (bm, count, bk) = self.heads, (sizes["bm"], sizes["groups"], sizes["bk"])
        blocks, columns = ceil(n_past / bk), heads.past + heads.rows
        read = min(heads.past, blocks * bk) + heads.rows
        row_blocks, groups = ceil(heads.rows / bm), ceil(heads.groups / count)
        batch, m = (heads.groups, heads.share) if heads.rows == 1 else (heads.heads * row_blocks, bm)
        scores = heads.heads * heads.rows * columns
        narrow: Classes = ("simple",) if heads.floats.nbytes < heads.score.nbytes else ()
        vector = self._weights(scores, (*CHOSEN, *SHARE, *narrow), heads.lanes)
        vector += self._mask(scores / (heads.share * count), heads.past > 0)
        matrix = self._product(batch, m, read, heads.depth) + self._product(batch, m, heads.width, read)
        programs = groups * row_blocks
        return Work(matrix, vector, programs, programs, row_blocks * heads.row_bytes(n_past), 2 * programs * blocks)

    def flash(self, sizes: Mapping[str, Any], n_past: int) -> Work:
        """Block of keys by block of keys, new ones first; products run one block ahead of the softmax."""
        heads, (batch, br, bk) = self.heads, (sizes["batch"], sizes["br"], sizes["bk"])
        starts, held = range(0, heads.rows, br), range(0, n_past, bk)
        old = [min(bk, heads.past - first) for first in held]
        sums = heads.heads * br * heads.width
        faded = self._seconds(SCALED, sums, WIDE)
        matrix = vector = 0.0
        runs = 0
        for start in starts:
            end = min(start + br, heads.rows)
            new = [min(bk, end - first) for first in range(0, end, bk) if not self._hidden(start, first, bk)]
            for columns, past in (*((n, False) for n in new), *((n, True) for n in old)):
                masked = not past or not heads.plain
                count = heads.heads * br * columns
                vector += self._weights(count, CHOSEN if masked else (), heads.lanes)
                vector += self._mask(count / (heads.share * batch), past) if masked else 0.0
                m = heads.share * br
                matrix += self._product(heads.groups, m, columns, heads.depth)
                matrix += self._product(heads.groups, m, heads.width, columns)
                matrix += self._product(heads.groups, m, PANEL, columns)
            vector += faded * (len(new) + len(old))  # each block but the first fades the sums, the last divides them
            runs += 2 * (len(new) + len(old)) * ceil(heads.groups / batch)
        loads = 2 * heads.groups * len(starts) * len(old)
        return Work(matrix, vector, runs, runs // 2, len(starts) * heads.row_bytes(n_past), loads, turns=runs // 2)

    def _hidden(self, row: int, column: int, columns: int) -> bool:
        """Whether a block of new columns lies before the window of each row."""
        return bool(self.heads.window) and column + columns - 1 <= row - self.heads.window

    def incremental(self, sizes: Mapping[str, Any], n_past: int) -> Work:
        """One row, all heads in one run; or the past in parts, each with its softmax, merged in the end."""
        heads, (count, part, bk) = self.heads, (sizes["groups"], sizes["part"], sizes["bk"])
        if heads.past <= part:
            return self.whole({"bm": 1, "groups": count, "bk": bk}, n_past)
        active, programs = max(ceil(n_past / part), 1), ceil(heads.groups / count)
        scores = heads.heads * (min(active * part, heads.past) + heads.rows)
        vector = self._weights(scores, CHOSEN, heads.lanes) + self._mask(scores / (heads.share * count), True)
        merged = ceil(heads.past / part) * heads.heads * heads.width
        vector += self._seconds(("load", "simple", "simple"), merged, WIDE)
        read = min(heads.past, ceil(n_past / bk) * bk) + heads.rows
        sides = ((read, heads.depth), (heads.width, read), (PANEL, read))
        matrix = sum(self._product(heads.groups, heads.share, n, k) for n, k in sides)
        loads = 2 * programs * ceil(n_past / bk)
        return Work(matrix, vector, programs * (active + 1), programs * active, heads.row_bytes(n_past), loads)


FORMS: Mapping[str, Callable[[Attention, Mapping[str, Any], int], Work]] = {
    "decomposed": Attention.whole,
    "flash": Attention.flash,
    "incremental": Attention.incremental,
}


def whole_bytes(heads: Heads, rows: int, groups: int, block: int) -> int:
    """On chip for `rows` rows of `groups` key heads in one program: scores, weights, and a block of keys or values."""
    item, columns = heads.floats.nbytes, heads.past + heads.rows
    keys = groups * min(columns, block) * max(heads.depth, heads.width) * item
    return groups * heads.share * rows * columns * (heads.score.nbytes + item) + keys


def smallest_bytes(node: ir.Node, floats: DType) -> int:
    """On chip for the smallest program, of the heads that share a key head: all scores of one row, or for a panel of
    rows two blocks of scores with their sums, one block of keys and values; over a ring always the former."""
    heads = Heads.of(node, floats)
    queries = heads.share * (heads.depth + heads.width) * floats.nbytes
    whole = whole_bytes(heads, 1, 1, KEY_BLOCK) + queries
    if heads.ring:
        return whole
    rows, keys = min(heads.rows, PANEL), min(max(heads.past, heads.rows), PANEL)
    sums = heads.share * rows * (heads.width + 1) * WIDE
    scores = heads.share * rows * keys * heads.score.nbytes
    block = keys * (heads.depth + heads.width) * floats.nbytes
    return min(whole, 2 * (scores + sums) + block + rows * queries)
