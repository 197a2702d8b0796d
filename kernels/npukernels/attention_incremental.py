"""Attention of one query over many keys: all heads in one SHAVE run, keys in parts that are merged at the end."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

from npuc import tile as t
from npukernels.caches import Cache, caches
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

    def past(self, cache: Cache | None, start: int, end: int, size: int) -> Iterator[tuple[Cache, int, int]]:
        """Blocks of the slots from start to end, each with its first slot and size and under its condition."""
        for first in range(start, end, size):
            count = min(size, end - first)
            with t.when(self.rule.past_shown(first, first + count - 1, 0)):
                assert cache is not None
                yield cache, first, count

    def weigh(self, scores: t.Array, tops: t.Array | None, place: int, start: int, end: int) -> None:
        """Scores of the slots from start to end, and of new rows behind them, become weights in place.

        They are relative to the largest score, which tops[place] gets; without `tops` they sum to 1.
        """
        s, column = self.rule.capped(t.load(scores, (0, 0, 0), scores.shape)), t.iota((1, scores.shape[2]), 1)
        position = t.where(column < end - start, column + start - t.step.n_past, column - (end - start))
        if self.slopes is not None:
            s = s + position.cast(t.f32) * self.slopes
        # slots of skipped blocks hold anything, NaN included: `where` drops it
        exists = (column >= end - start) | (position < 0)
        s = t.where(visible(self.rule, position, t.full((1, 1), 0, t.i32), exists), s, float("-inf"))
        if tops is None:
            t.store(scores, (0, 0, 0), softmax_rows(s, self.sinks))
            return
        largest = t.max(s, 2)
        t.store(scores, (0, 0, 0), t.exp(s - t.where(largest == float("-inf"), 0.0, largest)))
        t.store(tops, (place, 0, 0, 0), t.reshape(largest, (1, *largest.shape)))


Sums = tuple[t.Accumulator, t.Accumulator]
"""Of one part: its weights times values, and its weights."""


def _turns(rule: Rule, past: int, part: int) -> int:
    """How many parts behind the first act in one step at most: those that meet the window - 1 slots before n_past."""
    behind = t.cdiv(max(past, 1), part) - 1
    return min(behind, t.cdiv(rule.window - 2, part) + 1) if rule.window else behind


def _merged(tops: t.Array, parts: list[Sums], sinks: t.Tile | None) -> t.Tile:
    """The sums of all parts over their totals. tops [parts, kv, share, 1]: what each is relative to."""
    top = t.load(tops, (0, 0, 0, 0), tops.shape)
    highest = t.reshape(t.max(top, 0), tops.shape[1:])
    highest = highest if sinks is None else t.maximum(highest, sinks)
    highest = t.where(highest == float("-inf"), 0.0, highest)
    factors = [t.exp(t.reshape(top[n : n + 1], highest.shape) - highest) for n in range(len(parts))]
    total = t.zeros(highest.shape) if sinks is None else t.exp(sinks - highest)
    for (_, weights), factor in zip(parts, factors, strict=True):
        total = total + weights.read() * factor
    share = t.recip(t.where(total == 0.0, 1.0, total))
    result = parts[0][0].read() * (factors[0] * share)
    for (sums, _), factor in zip(parts[1:], factors[1:], strict=True):
        result = result + sums.read() * (factor * share)
    return result


@t.kernel
def attention_incremental(
    q: t.Array, k_new: t.Array, v_new: t.Array, k_past: t.Array | None, v_past: t.Array | None, out: t.Array,
    slopes: t.Array | None = None, sinks: t.Array | None = None, ones: t.Array | None = None,
    slots: t.Array | None = None, k_scales: t.Array | None = None, v_scales: t.Array | None = None,
    *, scale: float, softcap: float = 0.0, window: int = 0, causal: bool = True, groups: int, part: int, bk: int,
    codes: t.DType | None = None, widen: bool = False,
) -> None:  # fmt: skip
    """As `attention`, for q[H, 1, D]. Each valid row of the past is loaded once.

    groups: key heads of a program; part: slots of the past in one softmax, the first of which also has the new rows;
    parts at or past n_past, or wholly before the window, cost nothing, and several are merged by their largest scores.
    bk: slots of a load. ones, k_scales, v_scales, codes, widen: as in attention_flash; slots: unused here.
    """
    rule = Rule(scale, softcap, window, causal)
    past = 0 if k_past is None or not rule.sees_past(0) else k_past.shape[1]
    keys, values = caches((k_past, v_past), (k_scales, v_scales), codes, widen) or (None, None)
    share, depth, width = q.shape[0] // k_new.shape[0], q.shape[2], v_new.shape[2]
    (p,) = t.programs(t.cdiv(k_new.shape[0], groups))
    g, kv = p * groups, t.clipped(k_new, (p * groups, 0, 0), (groups, 1, 1))[0]
    numbers = (
        None if n is None else t.reshape(of_heads(n, g * share, kv, share), (kv, share, 1)) for n in (slopes, sinks)
    )
    heads = _Heads(rule, g, kv, *numbers)
    query = t.reshape(t.load(q, (g * share, 0, 0), (kv * share, 1, depth)), (kv, share, depth))
    parts: list[Sums] = []
    turns = _turns(rule, past, part)
    tops = t.scratch((1 + turns, kv, share, 1), score_type(q)) if past > part else None
    if tops is not None:
        t.store(tops, (0, 0, 0, 0), t.full(tops.shape, float("-inf"), tops.dtype))
    for number, start in enumerate(range(0, max(past, 1), part)):
        # parts that never act in one step take turns at the same sums
        place = number if number <= turns else 1 + (number - 1) % turns
        end, new = min(start + part, past), 0 if start else k_new.shape[1]
        scores = t.scratch((kv, share, end - start + new), score_type(q))
        if new:
            product = t.mma(query, t.load(k_new, (g, 0, 0), (kv, new, depth)), scale=rule.product_scale)
            t.store(scores, (0, 0, end - start), product)
        for cache, first, count in heads.past(keys, start, end, bk):
            for u, product in cache.products(query, g, first, kv, count, rule.product_scale):
                t.store(scores, (u, 0, first - start), product)
        with t.when(rule.past_shown(start, end - 1, 0)) if start else nullcontext():
            heads.weigh(scores, tops, place, start, end)

        if place == len(parts):
            sums, total = (t.accumulator((kv, share, n), init=0.0 if start else None) for n in (width, 1))
            parts.append((sums, total))
        sums, total = parts[place]
        if new:
            fresh = t.load(v_new, (g, 0, 0), (kv, new, width))
            t.mma(t.load(scores, (0, 0, end - start), (kv, share, new)), fresh, kn=True, acc=sums)
        for cache, first, count in heads.past(values, start, end, bk):
            weights = t.load(scores, (0, 0, first - start), (kv, share, count))
            t.mma(weights, cache.numbers(g, first, kv, count, q.dtype), kn=True, acc=sums)
        if tops is not None:
            count = scores.shape[2]
            row = t.full((1, count), 1.0, scores.dtype) if ones is None else t.load(ones, (0, 0), (1, count))
            with t.when(rule.past_shown(start, end - 1, 0)) if start else nullcontext():
                t.mma(t.load(scores, (0, 0, 0), scores.shape), row, acc=total)
    result = parts[0][0].read() if tops is None else _merged(tops, parts, heads.sinks)
    t.store(out, (g * share, 0, 0), t.reshape(result, (kv * share, 1, width)))
