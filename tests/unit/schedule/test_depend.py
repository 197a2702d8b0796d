"""Dependencies by bytes: which pairs are ordered, which are not, and what the reduction leaves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.schedule.bytes import overlap, shape_of
from npuc.schedule.depend import depend
from npuc.schedule.place import Placement
from npuc.tasks.graph import Buffer, CallOp, CopyOp, Region, Role, StepValue, Task, TaskGraph
from npurt.abi.dtypes import DType


def view(buffer: Buffer, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Region:
    return Region(buffer, offset, DType.I8, shape, stride)


def span(buffer: Buffer, low: int, high: int) -> Region:
    return view(buffer, low, (high - low,), (1,))


def task(engine: str, reads: list[Region], writes: list[Region]) -> Task:
    return Task(engine, CallOp("f", b"", ()), tuple(reads), tuple(writes))


def producers(tasks: list[Task], offsets: dict[Buffer, int]) -> list[tuple[int, ...]]:
    return depend(TaskGraph("main", tasks), Placement(offsets, {}), [t.engine for t in tasks]).producers


A, B = Buffer("a", "cmx", 256), Buffer("b", "cmx", 256)


def test_read_after_write_by_bytes_and_not_by_buffer() -> None:
    tasks = [
        task("dma.in", [], [span(A, 0, 64)]),
        task("dma.in", [], [span(A, 64, 128)]),
        task("dpu", [span(A, 0, 64)], [span(B, 0, 1)]),
        task("shave", [span(A, 100, 101)], [span(B, 1, 2)]),
    ]
    assert producers(tasks, {A: 0, B: 256}) == [(), (), (0,), (1,)]


def test_reuse_of_memory_waits_for_readers_and_writers() -> None:
    tasks = [
        task("dma.in", [], [span(A, 0, 256)]),
        task("dpu", [span(A, 0, 128)], []),
        task("shave", [span(A, 128, 256)], []),
        task("dma.in", [], [span(B, 0, 256)]),
        task("dma.in", [], [span(B, 0, 256)]),
    ]
    assert producers(tasks, {A: 0, B: 0}) == [(), (0,), (0,), (1, 2), ()]
    assert producers(tasks, {A: 0, B: 256}) == [(), (0,), (0,), (), ()]
    assert producers(tasks, {A: 0, B: 128}) == [(), (0,), (0,), (2,), ()]


def test_columns_of_one_matrix_do_not_meet() -> None:
    left, right = view(A, 0, (16, 8), (16, 1)), view(A, 8, (16, 8), (16, 1))
    tasks = [
        task("dpu", [], [left]),
        task("shave", [], [right]),
        task("dma.out", [left], []),
        task("dma.in", [], [left]),
    ]
    assert producers(tasks, {A: 0}) == [(), (), (0,), (2,)]


def test_an_ordering_that_others_imply_is_dropped() -> None:
    tasks = [
        task("dma.in", [], [span(A, 0, 64)]),
        task("dpu", [span(A, 0, 64)], [span(B, 0, 64)]),
        task("shave", [span(A, 0, 64), span(B, 0, 64)], [span(B, 64, 128)]),
        task("dpu", [span(A, 0, 64)], [span(B, 128, 192)]),
    ]
    assert producers(tasks, {A: 0, B: 256}) == [(), (0,), (1,), ()]


STATE = Buffer("state", "ddr", 64 * 16, Role.STATE)


def past_load(buffer: Buffer, row: int) -> Task:
    op = CopyOp(valid=StepValue("n_past", -row))
    return Task("dma.in", op, (view(STATE, 16 * row, (8, 16), (16, 1)),), (span(buffer, 0, 128),))


def test_the_store_of_new_rows_and_the_load_of_past_rows_are_free_of_each_other() -> None:
    store = Task("dma.out", CopyOp(shift_dst="n_past"), (span(B, 0, 16),), (view(STATE, 0, (1, 16), (16, 1)),))
    plain = Task("dma.in", CopyOp(), (view(STATE, 512, (8, 16), (16, 1)),), (span(A, 128, 256),))
    tasks = [past_load(A, 8), store, past_load(B, 16), plain, store]
    # B is read by the store before its load; rows without a bound may be the stored ones
    assert producers(tasks, {A: 0, B: 256}) == [(), (), (1,), (), (3,)]


def test_rows_stored_with_one_shift_meet_by_their_own_rows() -> None:
    def store(engine: str, row: int) -> Task:
        return Task(engine, CopyOp(shift_dst="n_past"), (), (view(STATE, 16 * row, (1, 16), (16, 1)),))

    assert producers([store("dma.out", 0), store("dma.in", 1), store("dma.in", 0)], {}) == [(), (), (0,)]


_DIMS = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 1, 2, 4, 8, 12, 16, 32, -4, -16, 48])), min_size=0, max_size=4
)
_REGIONS = st.tuples(st.integers(100, 220), st.sampled_from([DType.I8, DType.F16, DType.F32]), _DIMS)


def touched(region: tuple[int, DType, list[tuple[int, int]]]) -> set[int]:
    offset, dtype, dims = region
    starts = {offset}
    for extent, step in dims:
        starts = {start + at * step for start in starts for at in range(extent)}
    return {start + byte for start in starts for byte in range(dtype.nbytes)}


@settings(max_examples=300, deadline=None)
@given(first=_REGIONS, second=_REGIONS)
def test_the_strided_test_agrees_with_sets_of_bytes(
    first: tuple[int, DType, list[tuple[int, int]]], second: tuple[int, DType, list[tuple[int, int]]]
) -> None:
    shapes = []
    for offset, dtype, dims in (first, second):
        shape = shape_of(dtype, tuple(extent for extent, _ in dims), tuple(step for _, step in dims))
        assert shape is not None
        bytes_ = touched((offset, dtype, dims))
        assert (offset - shape.back, offset - shape.back + shape.reach) == (min(bytes_), max(bytes_) + 1)
        shapes.append((offset - shape.back, shape))
    expected = bool(touched(first) & touched(second))
    assert overlap(*shapes[0], *shapes[1]) == expected


def test_an_empty_region_has_no_bytes() -> None:
    assert shape_of(DType.F32, (4, 0), (16, 4)) is None
