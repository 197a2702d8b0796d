"""Attention with a running softmax: on-chip memory does not depend on the number of keys."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from npuc import tile as t
from npukernels.caches import Cache, caches
from npukernels.scores import Rule, of_heads, score_type, visible


@dataclass(frozen=True)
class _Operands:
    """The arrays of the kernel, and how many query heads share a key head."""

    q: t.Array
    new: tuple[t.Array, t.Array]
    past: tuple[Cache, Cache] | None
    out: t.Array
    slopes: t.Array | None
    sinks: t.Array | None
    ones: t.Array | None
    slots: t.Array | None
    rule: Rule
    share: int


class _Rows:
    """The running softmax of `kv` key heads from g on, over `count` rows from i on.

    top: the largest score of each row so far, [kv, share, rows, 1]. sums, totals: for each key head the sums of weights
    times values and of weights, relative to `top`.
    """

    def __init__(self, arrays: _Operands, g: t.Index, kv: int, i: int, count: int) -> None:
        self.arrays, self.g, self.kv, self.i, self.count = arrays, g, kv, i, count
        share, depth, width = arrays.share, arrays.q.shape[2], arrays.out.shape[2]
        self.queries = [t.load(arrays.q, ((g + u) * share, i, 0), (share, count, depth)) for u in range(kv)]
        self.top = t.scratch((kv, share, count, 1), score_type(arrays.q))
        self.sums = [t.accumulator((share, count, width)) for _ in range(kv)]
        self.totals = [t.accumulator((share, count, 1)) for _ in range(kv)]

    def blocks(self, size: int) -> "Iterator[_Block]":
        """The columns that any of the rows may see, `size` at a time; new ones first, which each row has."""
        rule, new = self.arrays.rule, self.arrays.new[0].shape[1]
        end = min(new, self.i + self.count) if rule.causal else new
        for first in range(0, end, size):
            if not rule.hides_all(self.i, self.count, first, min(size, end - first)):
                yield _Block(self, False, first, min(size, end - first))
        slots = 0 if self.arrays.past is None or not rule.sees_past(self.i) else self.arrays.past[0].rows.shape[1]
        for first in range(0, slots, size):
            yield _Block(self, True, first, min(size, slots - first))

    def finish(self) -> None:
        """out = sums / totals, zeros where no column was seen."""
        totals = [total.read() for total in self.totals]
        if self.arrays.sinks is not None:
            sink = of_heads(self.arrays.sinks, self.g * self.arrays.share, self.kv, self.arrays.share)
            more = t.exp(sink - t.load(self.top, (0, 0, 0, 0), self.top.shape))
            totals = [total + t.reshape(more[u : u + 1], total.shape) for u, total in enumerate(totals)]
        for u, (acc, total) in enumerate(zip(self.sums, totals, strict=True)):
            t.store(self.arrays.out, ((self.g + u) * self.arrays.share, self.i, 0),
                    acc.read() * t.recip(t.where(total == 0.0, 1.0, total)))  # fmt: skip


class _Block:
    """`count` columns from `first` on: slots of the past, or new rows. scores: they become weights in place."""

    def __init__(self, rows: _Rows, past: bool, first: int, count: int) -> None:
        self.rows, self.past, self.first, self.count = rows, past, first, count
        self.scores = t.scratch((*rows.top.shape[:3], count), rows.top.dtype)
        rule, held = rows.arrays.rule, rows.arrays.past
        self.caches = held if past else None
        # only where scores are products of floats can the DPU hide them
        plain = held is not None and held[0].floats and not rule.softcap and not rule.window
        self.slots = rows.arrays.slots if past and plain else None

    def acting(self) -> AbstractContextManager[None]:
        last = self.first + self.count - 1
        return t.when(self.rows.arrays.rule.past_shown(self.first, last, self.rows.i)) if self.past else nullcontext()

    def _load(self, array: t.Array, u: int) -> t.Tile:
        """New keys or values of a key head."""
        return t.load(array, (self.rows.g + u, self.first, 0), (1, self.count, array.shape[2]))

    def multiply(self) -> None:
        """Scores of all heads."""
        arrays, scale = self.rows.arrays, self.rows.arrays.rule.product_scale
        table = None if self.slots is None else t.load(self.slots, (self.first, 0), (self.count, 2))
        for u, queries in enumerate(self.rows.queries):
            if self.caches is None:
                product = t.mma(queries, self._load(arrays.new[0], u), scale=scale)
            else:
                place = (self.rows.g + u, self.first, 1, self.count)
                ((_, product),) = self.caches[0].products(queries, *place, scale, table)
            t.store(self.scores, (u, 0, 0, 0), t.reshape(product, (1, *product.shape)))

    def weigh(self, started: bool) -> None:
        """Scores become weights relative to the largest so far; earlier sums fade where that has grown."""
        rows, whole = self.rows, self.rows.top.shape
        s = self._masked(t.load(self.scores, (0, 0, 0, 0), self.scores.shape))
        top = t.max(s, 3)
        if started:
            old = t.load(rows.top, (0, 0, 0, 0), whole)
            top = t.maximum(old, top)
        elif rows.arrays.sinks is not None:
            sink = of_heads(rows.arrays.sinks, rows.g * rows.arrays.share, rows.kv, rows.arrays.share)
            top = t.maximum(top, sink).cast(rows.top.dtype)
        base = t.where(top == float("-inf"), 0.0, top)
        t.store(self.scores, (0, 0, 0, 0), t.exp(s - base))
        if started:
            fade = t.exp(old - base).cast(rows.top.dtype)
        t.store(rows.top, (0, 0, 0, 0), top)
        t.end_run()
        if started:
            for u, (total, acc) in enumerate(zip(rows.totals, rows.sums, strict=True)):
                part = t.reshape(fade[u : u + 1], total.shape)
                total.scale(part)
                acc.scale(part)

    def _masked(self, products: t.Tile) -> t.Tile:
        arrays, rows = self.rows.arrays, self.rows
        rule, s = arrays.rule, arrays.rule.capped(products)
        position = t.iota((1, self.count), 1) + self.first
        position = position - t.step.n_past if self.past else position
        row = t.iota((rows.count, 1), 0) + rows.i
        if arrays.slopes is not None:
            s = s + (position - row).cast(t.f32) * of_heads(arrays.slopes, rows.g * arrays.share, rows.kv, arrays.share)
        seen = not self.past and rule.hides_nothing(rows.i, rows.count, self.first, self.count)
        if seen or self.slots is not None:
            return s
        exists = position < 0 if self.past else None
        return t.where(visible(rule, position, row, exists), s, float("-inf"))

    def mix(self) -> None:
        """Adds the values by their weights, and the weights."""
        arrays, ones, size = self.rows.arrays, self.rows.arrays.ones, (1, self.count)
        row = t.full(size, 1.0, self.scores.dtype) if ones is None else t.load(ones, (0, 0), size)
        for u, (acc, total) in enumerate(zip(self.rows.sums, self.rows.totals, strict=True)):
            weights = t.load(self.scores, (u, 0, 0, 0), (1, *self.scores.shape[1:]))
            weights = t.reshape(weights, self.scores.shape[1:])
            if self.caches is None:
                values = self._load(arrays.new[1], u)
            else:
                values = self.caches[1].numbers(self.rows.g + u, self.first, 1, self.count, arrays.q.dtype)
            t.mma(weights, values, kn=True, acc=acc)
            t.mma(weights, row, acc=total)


@t.kernel
def attention_flash(
    q: t.Array, k_new: t.Array, v_new: t.Array, k_past: t.Array | None, v_past: t.Array | None, out: t.Array,
    slopes: t.Array | None = None, sinks: t.Array | None = None, ones: t.Array | None = None,
    slots: t.Array | None = None, k_scales: t.Array | None = None, v_scales: t.Array | None = None,
    *, scale: float, softcap: float = 0.0, window: int = 0, causal: bool = True, groups: int, batch: int, bm: int,
    br: int, bk: int, codes: t.DType | None = None, widen: bool = False,
) -> None:  # fmt: skip
    """As `attention`, block of keys by block of keys; sums are rescaled where a block raises a row's largest score.

    ones[1, >= bk], 1 everywhere, of q's type: the DPU sums weights by it; without it a SHAVE run makes it. slots
    f32 [N, 2]: (1, 0) for each valid slot of the past, (1, -inf) for the others, as the DPU takes it; without it, and
    with a softcap, a window or products of codes, vector code masks them. groups, bm: key heads and rows of a program;
    batch, br: key heads and rows of a SHAVE run; bk: keys of a block. k_scales, v_scales, codes, widen: of a past of
    codes, as Cache has them.
    """
    rule, past = Rule(scale, softcap, window, causal), caches((k_past, v_past), (k_scales, v_scales), codes, widen)
    arrays = _Operands(q, (k_new, v_new), past, out, slopes, sinks, ones, slots, rule, q.shape[0] // k_new.shape[0])
    g, p = t.programs(t.cdiv(k_new.shape[0], groups), t.cdiv(q.shape[1], bm))
    g, start = g * groups, int(p * bm)
    groups = t.clipped(k_new, (g, 0, 0), (groups, 1, 1))[0]

    def steps() -> Iterator[tuple[_Block, bool, bool] | None]:
        """Each block, whether it is not the first of its rows, and whether it is the last."""
        for i in range(start, min(start + bm, q.shape[1]), br):
            for u in range(0, groups, batch):
                rows = _Rows(arrays, g + u, min(batch, groups - u), i, min(br, start + bm - i, q.shape[1] - i))
                blocks = list(rows.blocks(bk))
                yield from ((block, n > 0, n == len(blocks) - 1) for n, block in enumerate(blocks))
        yield None

    # products run one block ahead, and sums are finished one block late: the DPU computes while SHAVE does
    ready, done = None, None
    for ahead in steps():
        if ahead is not None:
            with ahead[0].acting():
                ahead[0].multiply()
        if ready is not None:
            block, started, last = ready
            with block.acting():
                block.weigh(started)
            if done is not None:
                done.finish()
            with block.acting():
                block.mix()
            done = block.rows if last else None
        ready = ahead
    if done is not None:
        done.finish()
