"""Attention of one query over many keys: all heads in one SHAVE run, keys in parts that are merged at the end."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from npuc import tile as t
from npukernels.normalise import softmax_rows
from npukernels.scores import Rule, of_heads, score_type, visible


@dataclass(frozen=True)
class _Heads:
    """The query heads of `kv` key heads from g on. slopes, sinks: [kv, share, 1] or None."""

    rule: Rule
    g: t.Index
    kv: int
    slopes: t.Tile | None
    sinks: t.Tile | None

    def past(self, cache: t.Array | None, start: int, end: int, size: int) -> Iterator[tuple[int, t.Tile]]:
        """Blocks of the slots from start to end, each with its first slot and under its condition."""
        for first in range(start, end, size):
            with t.when(t.step.n_past > first):
                assert cache is not None
                block = (self.kv, min(size, end - first), cache.shape[2])
                yield first, t.load(cache, (self.g, first, 0), block, valid=(1, t.step.n_past - first))

    def weigh(self, scores: t.Array, top: t.Array, start: int, end: int, alone: bool) -> None:
        """Scores of the slots from start to end, and of new rows behind them, become weights in place.

        alone: they sum to 1; else they are relative to the largest score, which `top` gets.
        """
        s, column = self.rule.capped(t.load(scores, (0, 0, 0), scores.shape)), t.iota((1, scores.shape[2]), 1)
        position = t.where(column < end - start, column + start - t.step.n_past, column - (end - start))
        if self.slopes is not None:
            s = s + position.cast(t.f32) * self.slopes
        # slots of skipped blocks hold anything, NaN included: `where` drops it
        exists = (column >= end - start) | (position < 0)
        s = t.where(visible(self.rule, position, t.full((1, 1), 0, t.i32), exists), s, float("-inf"))
        if alone:
            t.store(scores, (0, 0, 0), softmax_rows(s, self.sinks))
            return
        largest = t.max(s, 2)
        t.store(scores, (0, 0, 0), t.exp(s - t.where(largest == float("-inf"), 0.0, largest)))
        t.store(top, (0, 0, 0), largest)


@dataclass(frozen=True)
class _Part:
    """Sums over the slots from `start` on, relative to the largest score in `top`."""

    start: int
    top: t.Array
    sums: t.Accumulator
    total: t.Accumulator


def _merged(parts: list[_Part], sinks: t.Tile | None) -> t.Tile:
    """The sums of all parts over their totals; a part at or past n_past does not count."""
    tops = []
    for part in parts:
        top = t.load(part.top, (0, 0, 0), part.top.shape)
        tops.append(
            top if not part.start else t.where(t.full((1, 1, 1), part.start, t.i32) < t.step.n_past, top, float("-inf"))
        )
    highest = tops[0] if sinks is None else t.maximum(tops[0], sinks)
    for top in tops[1:]:
        highest = t.maximum(highest, top)
    highest = t.where(highest == float("-inf"), 0.0, highest)
    factors = [t.exp(top - highest) for top in tops]
    total = t.zeros(highest.shape) if sinks is None else t.exp(sinks - highest)
    for part, factor in zip(parts, factors, strict=True):
        total = total + part.total.read() * factor
    share = t.recip(t.where(total == 0.0, 1.0, total))
    result = parts[0].sums.read() * (factors[0] * share)
    for part, factor in zip(parts[1:], factors[1:], strict=True):
        result = result + part.sums.read() * (factor * share)
    return result


@t.kernel
def attention_incremental(
    q: t.Array, k_new: t.Array, v_new: t.Array, k_past: t.Array | None, v_past: t.Array | None, out: t.Array,
    slopes: t.Array | None = None, sinks: t.Array | None = None, ones: t.Array | None = None,
    slots: t.Array | None = None,
    *, scale: float, softcap: float = 0.0, window: int = 0, causal: bool = True, groups: int, part: int, bk: int,
) -> None:  # fmt: skip
    """As `attention`, for q[H, 1, D]. Each valid row of the past is loaded once.

    groups: key heads of a program; part: slots of the past in one softmax, the first of which also has the new rows;
    parts at or past n_past cost nothing, and several are merged by their largest scores. bk: slots of a load. ones: as
    in attention_flash; slots: unused here.
    """
    rule, past = Rule(scale, softcap, window, causal), 0 if k_past is None else k_past.shape[1]
    share, depth, width = q.shape[0] // k_new.shape[0], q.shape[2], v_new.shape[2]
    (p,) = t.programs(t.cdiv(k_new.shape[0], groups))
    g, kv = p * groups, t.clipped(k_new, (p * groups, 0, 0), (groups, 1, 1))[0]
    numbers = (
        None if n is None else t.reshape(of_heads(n, g * share, kv, share), (kv, share, 1)) for n in (slopes, sinks)
    )
    heads = _Heads(rule, g, kv, *numbers)
    query = t.reshape(t.load(q, (g * share, 0, 0), (kv * share, 1, depth)), (kv, share, depth))
    parts, alone = [], past <= part
    for start in range(0, max(past, 1), part):
        end, new = min(start + part, past), 0 if start else k_new.shape[1]
        scores, top = t.scratch((kv, share, end - start + new), score_type(q)), t.scratch((kv, share, 1), score_type(q))
        if new:
            product = t.mma(query, t.load(k_new, (g, 0, 0), (kv, new, depth)), scale=rule.product_scale)
            t.store(scores, (0, 0, end - start), product)
        for first, keys in heads.past(k_past, start, end, bk):
            t.store(scores, (0, 0, first - start), t.mma(query, keys, scale=rule.product_scale))
        with t.when(t.step.n_past > start) if start else nullcontext():
            heads.weigh(scores, top, start, end, alone)

        sums, total = (t.accumulator((kv, share, n), init=0.0 if start else None) for n in (width, 1))
        if new:
            values = t.load(v_new, (g, 0, 0), (kv, new, width))
            t.mma(t.load(scores, (0, 0, end - start), (kv, share, new)), values, kn=True, acc=sums)
        for first, values in heads.past(v_past, start, end, bk):
            weights = t.load(scores, (0, 0, first - start), (kv, share, values.shape[1]))
            t.mma(weights, values, kn=True, acc=sums)
        if not alone:
            count = scores.shape[2]
            row = t.full((1, count), 1.0, scores.dtype) if ones is None else t.load(ones, (0, 0), (1, count))
            with t.when(t.step.n_past > start) if start else nullcontext():
                t.mma(t.load(scores, (0, 0, 0), scores.shape), row, acc=total)
            parts.append(_Part(start, top, sums, total))
    result = sums.read() if alone else _merged(parts, heads.sinks)
    t.store(out, (g * share, 0, 0), t.reshape(result, (kv * share, 1, width)))
