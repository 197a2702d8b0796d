"""Random kernels: eager execution and stamped tasks agree bit for bit, for any shapes, types, strides and places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc import tile as t
from npukernels import elementwise, matmul
from tests.support.kernels import run_both

EXTENTS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 13])
MEMORY = st.sampled_from(["ddr", "cmx"])
FLOATS = st.sampled_from([np.float16, np.float32])
UNARY = (t.exp, t.tanh, t.sigmoid, t.abs, t.floor, t.sign, t.neg, lambda x: t.sqrt(t.abs(x)), lambda x: x.cast(t.f16))
BINARY = (
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, t.maximum, t.minimum,
    lambda x, y: t.where(x < y, x, y * 0.5), lambda x, y: x / (t.abs(y) + 1.0),
)  # fmt: skip
REDUCE = (t.sum, t.max, t.min)


@dataclass(frozen=True)
class Program:
    """Steps over a growing list of tiles: (kind, function number, operands)."""

    steps: tuple[tuple[str, int, int, int], ...]

    def __call__(self, *tiles: t.Tile) -> t.Tile:
        values = list(tiles)
        for kind, number, a, b in self.steps:
            x, y = values[a % len(values)], values[b % len(values)]
            if kind == "unary":
                values.append(UNARY[number % len(UNARY)](x))
            elif kind == "binary":
                values.append(BINARY[number % len(BINARY)](x, y))
            else:
                values.append(x + REDUCE[number % len(REDUCE)](x, x.rank - 1) * 0.125)
        return values[-1]


PROGRAMS = st.lists(
    st.tuples(st.sampled_from(["unary", "binary", "reduce"]), *[st.integers(0, 20)] * 3), min_size=1, max_size=8
).map(lambda steps: Program(tuple(steps)))


def strided(rng: np.random.Generator, shape: tuple[int, ...], dtype: type, gap: int, swap: bool) -> np.ndarray:
    """An array of `shape` as a view of a larger one, its last two axes exchanged in memory if `swap`."""
    order = (*shape[:-2], shape[-1], shape[-2]) if swap and len(shape) > 1 else shape
    whole = rng.standard_normal((*order[:-1], order[-1] + gap)).astype(dtype)
    view = whole[..., gap:]
    return np.swapaxes(view, -1, -2) if order is not shape else view


@settings(max_examples=60, deadline=None)
@given(
    PROGRAMS, st.lists(EXTENTS, min_size=1, max_size=4).map(tuple), st.lists(st.booleans(), min_size=4, max_size=4),
    st.lists(FLOATS, min_size=3, max_size=3), st.lists(MEMORY, min_size=3, max_size=3), st.integers(0, 3),
    st.lists(st.integers(1, 6), min_size=4, max_size=4), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_elementwise_programs(
    program: Program, shape: tuple[int, ...], ones: list[bool], dtypes: list[type], memory: list[str], gap: int,
    tile: list[int], swap: bool, seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    narrow = tuple(1 if one else extent for one, extent in zip(ones, shape, strict=False))
    arrays = [
        strided(rng, shape, dtypes[0], gap, swap),
        strided(rng, narrow, dtypes[1], gap, False),
        strided(rng, shape, dtypes[2], gap, swap),
    ]
    sizes = (*tile[: len(shape) - 1], shape[-1])  # the reductions are over the last axis
    run_both(elementwise.elementwise, arrays, memory=memory, fn=program, tile=sizes)


@settings(max_examples=40, deadline=None)
@given(
    EXTENTS, EXTENTS, EXTENTS, st.integers(1, 9), st.integers(1, 9), st.integers(1, 14), st.sampled_from(["n", "m"]),
    st.lists(FLOATS, min_size=4, max_size=4), st.lists(MEMORY, min_size=5, max_size=5), st.booleans(), st.booleans(),
    PROGRAMS, st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_products_with_epilogues(
    m: int, n: int, k: int, bm: int, bn: int, bk: int, outer: str, dtypes: list[type], memory: list[str], table: bool,
    swap: bool, program: Program, seed: int,
) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    arrays = [
        strided(rng, (m, k), dtypes[0], 2, False),
        strided(rng, (n, k), dtypes[1], 0, False),
        strided(rng, (m, n), dtypes[2], 1, swap),
        rng.standard_normal((n, 2)).astype(np.float32) if table else None,
        strided(rng, (m, n), dtypes[3], 1, swap),
    ]
    sizes = {"bm": bm, "bn": bn, "bk": bk, "outer": outer}
    run_both(matmul.matmul, arrays, memory=memory, epilogue=program, **sizes)
    run_both(matmul.matmul, arrays[:4], memory=memory[:4], **sizes)


@t.kernel
def chain(x: t.Array, w: t.Array, out: t.Array, *, programs: tuple[Program, ...], kn: bool) -> None:
    """Vector code and products in turn, the values of earlier stages used again later."""
    (i,) = t.programs(t.cdiv(x.shape[0], 3))
    values = [t.load(x, (i * 3, 0), (3, x.shape[1]))]
    weights = t.load(w, (0, 0), w.shape)
    for program in programs:
        values.append(t.mma(program(*values).cast(t.f16), weights, kn=kn))
    t.store(out, (i * 3, 0), values[-1] + values[len(values) // 2])


@settings(max_examples=40, deadline=None)
@given(
    EXTENTS, EXTENTS, st.lists(PROGRAMS, min_size=1, max_size=3).map(tuple), st.booleans(),
    st.lists(MEMORY, min_size=3, max_size=3), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_chains_of_fragments_and_products(
    m: int, n: int, programs: tuple[Program, ...], kn: bool, memory: list[str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, n), (n, n)))
    run_both(chain, [x, w, np.zeros((m, n), np.float32)], memory=memory, programs=programs, kn=kn)


@dataclass(frozen=True)
class Act:
    """One statement over a shared scratch array: its kind, two row positions, and an earlier tile."""

    kind: str
    at: int
    other: int
    tile: int


ACTS = st.lists(
    st.builds(
        Act, st.sampled_from(["load", "view", "store", "product", "compute", "gather", "out"]),
        st.integers(0, 6), st.integers(0, 6), st.integers(0, 9),
    ),
    min_size=2, max_size=12,
).map(tuple)  # fmt: skip


@t.kernel
def shared_scratch(x: t.Array, out: t.Array, *, acts: tuple[Act, ...], when: tuple[int, ...]) -> None:
    """Reads, writes, products and row moves in one scratch array, in any order and overlap."""
    box = t.scratch((8, 4), t.f16)
    t.store(box, (0, 0), t.load(x, (0, 0), x.shape))
    tiles = [t.load(box, (0, 0), (2, 4))]
    for number, act in enumerate(acts):
        tile = tiles[act.tile % len(tiles)]
        if act.kind == "load":
            tiles.append(t.load(box, (act.at, 0), (2, 4)))
        elif act.kind == "view":
            tiles.append(t.reshape(t.transpose(t.load(box, (act.at % 5, 0), (4, 4)), (1, 0))[1:3], (2, 4)))
        elif act.kind == "compute":
            tiles.append(t.tanh(tile) + tiles[act.other % len(tiles)])
        elif act.kind == "product":
            square = t.load(box, (act.at % 5, 0), (4, 4))
            t.store(box, (act.other, 0), t.mma(tile.cast(t.f16), square))
        elif act.kind == "gather":
            rows = t.iota((2,), 0) + act.at
            t.store(box, (act.other, 0), t.gather(box, rows))
        elif act.kind == "out":
            t.store(out, (act.other, 0), tile)
        elif number in when:
            with t.when(t.step.n_past > act.at):
                t.store(box, (act.other, 0), t.load(box, (act.at, 0), (2, 4)) * 0.5)
            tiles = [t.load(box, (0, 0), (2, 4))]
        else:
            t.store(box, (act.at, 0), tile)
    t.store(out, (0, 0), t.load(box, (0, 0), (8, 4)).cast(t.f32) + t.reshape(tiles[-1][0:1], (1, 4)))


@settings(max_examples=80, deadline=None)
@given(
    ACTS, st.lists(st.integers(0, 11), max_size=3).map(tuple), st.lists(MEMORY, min_size=2, max_size=2),
    st.integers(0, 7), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_hazards_on_one_scratch_array(
    acts: tuple[Act, ...], when: tuple[int, ...], memory: list[str], n_past: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal((8, 4)).astype(np.float16), np.zeros((8, 4), np.float32)]
    run_both(shared_scratch, arrays, memory=memory, step={"n_past": n_past, "n_new": 1}, acts=acts, when=when)
