"""Placement: what fits, what is stretched, and what the refusal says."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from npuc.schedule import OverflowRefused, PinRefused
from npuc.schedule.lives import local_lives
from npuc.schedule.place import place
from npuc.tasks.graph import Buffer, CallOp, CopyOp, Region, Role, Task, TaskGraph
from npurt.abi.dtypes import DType

SOURCE = Buffer("source", "ddr", 1 << 20, Role.INPUT)


def whole(buffer: Buffer) -> Region:
    return Region(buffer, 0, DType.I8, (buffer.nbytes,), (1,))


def load(buffer: Buffer) -> Task:
    return Task("dma.in", CopyOp(), (Region(SOURCE, 0, DType.I8, (buffer.nbytes,), (1,)),), (whole(buffer),))


def call(reads: list[Buffer], writes: list[Buffer]) -> Task:
    return Task("shave", CallOp("f", b"", ()), tuple(map(whole, reads)), tuple(map(whole, writes)))


def chain(count: int, size: int) -> TaskGraph:
    """Loads of `count` buffers, each used by the task behind it."""
    tasks = []
    for at in range(count):
        buffer = Buffer(f"b{at}", "cmx", size, where=f"kernel.py:{at}")
        tasks += [load(buffer), call([buffer], [buffer])]
    return TaskGraph("main", tasks)


def test_buffers_that_never_meet_share_bytes() -> None:
    placement = place(chain(8, 1024), {"cmx": 1 << 20}, prefetch=0, overlap=0)
    assert placement.peaks == {"cmx": 1024}


def test_prefetch_keeps_the_memory_of_a_load_free_before_it() -> None:
    graph = chain(8, 1024)
    placement = place(graph, {"cmx": 1 << 20}, prefetch=2, overlap=0)
    offsets = list(placement.offsets.values())
    assert all(a != b for a, b in pairwise(offsets))
    assert placement.peaks == {"cmx": 2048}


def test_prefetch_is_given_up_only_where_memory_is_short() -> None:
    graph = chain(6, 1024)
    wide = Buffer("wide", "cmx", 3072)
    graph.tasks += [call([], [wide]), call([wide], [wide]), load(last := Buffer("last", "cmx", 1024)), call([last], [])]
    placement = place(graph, {"cmx": 3072}, prefetch=2, overlap=0)
    offsets = [placement.offsets[buffer] for buffer in graph.buffers() if buffer.name.startswith("b")]
    assert all(a != b for a, b in pairwise(offsets[:-1]))
    assert placement.peaks == {"cmx": 3072}


def test_a_computed_buffer_is_stretched_by_overlap_and_a_loaded_one_by_prefetch() -> None:
    graph = chain(10, 64)
    computed = Buffer("computed", "cmx", 64)
    graph.tasks += [call([], [computed])]
    lives = local_lives(graph, prefetch=16, overlap=6)["cmx"]
    assert lives.early.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 16, 6]


def test_alignment_and_memories_apart() -> None:
    buffers = [Buffer("a", "cmx", 100), Buffer("b", "cmx", 100, align=256), Buffer("c", "ddr", 100)]
    placement = place(TaskGraph("main", [call([], buffers)]), {"cmx": 1 << 20}, prefetch=0, overlap=0)
    assert sorted(placement.offsets[buffer] for buffer in buffers[:2]) in ([0, 128], [0, 256])
    assert placement.offsets[buffers[1]] % 256 == 0
    assert placement.offsets[buffers[2]] == 0


def test_overflow_lists_the_live_buffers_and_the_smallest_change() -> None:
    big = Buffer("scores", "cmx", 3000, where="attention.py:31")
    small = Buffer("q", "cmx", 1000, where="attention.py:12")
    graph = TaskGraph("main", [load(small), call([small], [big])])
    with pytest.raises(OverflowRefused) as refused:
        place(graph, {"cmx": 3500}, prefetch=4, overlap=2)
    assert str(refused.value).splitlines() == [
        "cmx overflows: 2 buffers live at task 1 need 4000 B, there are 3500 B",
        "        3000 B  scores (attention.py:31)",
        "        1000 B  q (attention.py:12)",
        "it fits if scores (attention.py:31) shrinks by 500 B to 2500 B",
    ]
    assert (refused.value.memory, refused.value.needed, refused.value.available, refused.value.task) == (
        "cmx",
        4000,
        3500,
        1,
    )


def test_overflow_of_many_buffers_names_the_share_to_give_up() -> None:
    buffers = [Buffer(f"t{at}", "cmx", 1000 - at, where="k.py:7") for at in range(12)]
    with pytest.raises(OverflowRefused) as refused:
        place(TaskGraph("main", [call([], buffers)]), {"cmx": 4096}, prefetch=0, overlap=0)
    lines = str(refused.value).splitlines()
    assert lines[0] == "cmx overflows: 12 buffers live at task 0 need 11934 B, there are 4096 B"
    assert lines[1] == "        1000 B  t0 (k.py:7)"
    assert lines[9] == "        3962 B  in 4 smaller buffers"
    assert lines[10] == "it fits if the 8 largest together shrink by 7838 B, 99 % of their 7972 B: smaller tiles"


def test_pinned_buffers_stay_and_others_go_around_them() -> None:
    pinned = Buffer("table", "l1", 512, align=32, pinned=512)
    free = [Buffer(f"f{at}", "l1", 400, align=32) for at in range(3)]
    placement = place(TaskGraph("main", [call([], [*free, pinned])]), {"l1": 2048}, prefetch=0, overlap=0)
    assert placement.offsets[pinned] == 512
    assert sorted(placement.offsets[buffer] for buffer in free) == [0, 1024, 1440]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (256, "l1: b (k.py:2) and a (k.py:1) are pinned to the same bytes and live at the same time"),
        (100, "l1: b (k.py:2) is pinned at 100, which is not a multiple of 32 or ends outside the memory's 4096 B"),
        (3840, "l1: b (k.py:2) is pinned at 3840, which is not a multiple of 32 or ends outside the memory's 4096 B"),
    ],
)
def test_pins_that_cannot_be_kept_are_refused(start: int, message: str) -> None:
    a = Buffer("a", "l1", 512, align=32, pinned=0, where="k.py:1")
    b = Buffer("b", "l1", 512, align=32, pinned=start, where="k.py:2")
    with pytest.raises(PinRefused) as refused:
        place(TaskGraph("main", [call([], [a, b])]), {"l1": 4096}, prefetch=0, overlap=0)
    assert str(refused.value) == message


def test_the_result_does_not_depend_on_the_run() -> None:
    graphs = [chain(50, 100 + 64 * (at % 7)) for at in (3, 3)]
    first, second = (list(place(graph, {"cmx": 4096}, 8, 4).offsets.values()) for graph in graphs)
    assert first == second


def test_twenty_thousand_tasks_are_placed_in_two_seconds() -> None:
    graph = chain(10_000, 4096)
    started = time.process_time()
    place(graph, {"cmx": 60_000}, prefetch=16, overlap=6)
    assert time.process_time() - started < 2
