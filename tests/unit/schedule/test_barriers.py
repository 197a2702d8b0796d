"""Barriers: merging, the limit on open ones, ids, and the machine that runs them."""

from __future__ import annotations

import random

import pytest

from npuc.schedule import Barrier, EntryProgram, ScheduleBroken, Sync
from npuc.schedule.barriers import Virtual, assign, legalise, simplify, virtual_barriers
from npuc.schedule.simulate import BarrierMachine, run_to_completion


def pairs(barriers: list[Virtual]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(barrier.producers, barrier.consumers) for barrier in barriers]


def most_open(barriers: list[Virtual], tasks: int) -> int:
    return max((sum(b.first <= task <= b.last for b in barriers) for task in range(tasks)), default=0)


def reaches(queues: list[int], edges: list[tuple[int, int]]) -> list[set[int]]:
    """For each task all tasks that are complete before it starts."""
    before: list[set[int]] = []
    last: dict[int, int] = {}
    into: dict[int, list[int]] = {}
    for producer, consumer in edges:
        into.setdefault(consumer, []).append(producer)
    for task, queue in enumerate(queues):
        direct = [*into.get(task, []), *([last[queue]] if queue in last else [])]
        before.append(set(direct).union(*(before[other] for other in direct)))
        last[queue] = task
    return before


def test_tasks_with_equal_producers_share_a_barrier() -> None:
    found = virtual_barriers([(), (), (0, 1), (0, 1), (1,), (0, 1)])
    assert pairs(found) == [((0, 1), (2, 3, 5)), ((1,), (4,))]


def test_within_the_limit_nothing_changes() -> None:
    barriers = [Virtual((0,), (3,)), Virtual((1,), (2, 4)), Virtual((3,), (5,))]
    assert legalise(barriers, [0, 0, 1, 1, 2, 0], 3) == barriers


def test_the_pair_with_the_most_room_is_joined() -> None:
    """Three are open at task 2: joining the first and the third leaves 3 tasks between, any other pair fewer."""
    barriers = [Virtual((0,), (9,)), Virtual((1,), (3,)), Virtual((2,), (5,))]
    joined = legalise(barriers, [0, 0, 0, 1, 1, 1, 1, 1, 1, 1], 2)
    assert pairs(joined) == [((1,), (3,)), ((2,), (5,))]


@pytest.mark.parametrize("limit", [4, 6, 16])
@pytest.mark.parametrize("seed", range(5))
def test_random_edges_stay_ordered_within_the_limit(seed: int, limit: int) -> None:
    rng = random.Random(seed)
    tasks = 300
    queues = [rng.randrange(4) for _ in range(tasks)]
    wanted: list[tuple[int, ...]] = []
    for task in range(tasks):
        able = [other for other in range(max(0, task - 60), task) if queues[other] != queues[task]]
        chosen = {queues[at]: at for at in sorted(rng.sample(able, min(len(able), rng.randrange(4))))}
        wanted.append(tuple(sorted(chosen.values())))
    edges = [(producer, task) for task, waited in enumerate(wanted) for producer in waited]
    virtual = virtual_barriers(wanted)
    assert most_open(virtual, tasks) > limit
    legal = simplify(legalise(virtual, queues, limit), queues)
    assert most_open(legal, tasks) <= limit
    before = reaches(queues, [(p, c) for barrier in legal for p in barrier.producers for c in barrier.consumers])
    assert all(producer in before[consumer] for producer, consumer in edges)
    table, sync = assign(legal, tasks, limit)
    program = EntryProgram("main", 0, 0, [], [str(queue) for queue in queues], {}, table, sync, {}, {})
    run_to_completion(program)


def test_a_limit_that_one_task_exceeds_cannot_be_met() -> None:
    barriers = [Virtual((0,), (1,)), Virtual((0,), (2,))]
    with pytest.raises(ScheduleBroken, match="no two of the 1 barriers open at task 0 can be joined"):
        legalise([*barriers, Virtual((1,), (2,))], [0, 1, 2], 0)


def test_waits_that_are_implied_are_dropped() -> None:
    queues = [0, 1, 2, 1]
    barriers = [Virtual((0,), (1, 2)), Virtual((1,), (2,)), Virtual((0,), (3,))]
    assert pairs(simplify(barriers, queues)) == [((0,), (1,)), ((1,), (2,))]


def test_ids_start_after_and_counts() -> None:
    table, sync = assign([Virtual((0,), (1,)), Virtual((1,), (2, 3)), Virtual((2,), (3,))], 4, 3)
    assert table == [Barrier(0, 1, 1), Barrier(1, 1, 2), Barrier(2, 1, 1)]
    assert sync == [
        Sync((), (0,), 1),
        Sync((0,), (1,), 2),
        Sync((1,), (2,), 3),
        Sync((1, 2), (), 3),
    ]


def test_the_id_that_is_free_the_longest_comes_next() -> None:
    table, _ = assign([Virtual((at,), (at + 1,)) for at in range(5)], 6, 3)
    assert [row.id for row in table] == [0, 1, 2, 0, 1]


def test_more_open_barriers_than_ids_is_an_internal_error() -> None:
    with pytest.raises(ScheduleBroken, match="barrier 1 finds no free id at task 1: more than 1 are open"):
        assign([Virtual((0,), (2,)), Virtual((1,), (2,))], 3, 1)


def test_an_id_is_reprogrammed_when_all_counts_are_zero() -> None:
    """Queue a posts id 0 for b twice; the second row waits until b has taken the first."""
    table, sync = assign([Virtual((0,), (1,)), Virtual((2,), (3,))], 4, 1)
    machine = BarrierMachine(["a", "b", "a", "b"], table, sync)
    assert machine.startable() == ["a"]
    machine.start("a")
    machine.finish("a")
    assert machine.startable() == ["b"], "row 1 has no id yet"
    machine.start("b")
    assert machine.startable() == ["a"], "taking the last count frees the id"


def test_a_deadlock_is_reported_with_the_machine() -> None:
    sync = [Sync((1,), (0,), 2), Sync((0,), (1,), 2)]
    program = EntryProgram("main", 0, 0, [], ["a", "b"], {}, [Barrier(0, 1, 1), Barrier(1, 1, 1)], sync, {}, {})
    with pytest.raises(ScheduleBroken) as broken:
        run_to_completion(program)
    assert str(broken.value).splitlines() == [
        "entry main: deadlock with 2 tasks left",
        "2 of 2 barriers programmed",
        "  a: task 0 waits (1,) posts (0,) start_after 2",
        "  b: task 1 waits (0,) posts (1,) start_after 2",
        "  id 0: 1 producers, 1 consumers left",
        "  id 1: 1 producers, 1 consumers left",
    ]


def test_the_last_tasks_mark_completion() -> None:
    program = EntryProgram("main", 0, 0, [], ["a", "b", "a", "c"], {}, [], [], {"cmx": 64, "ddr": 128}, {})
    assert program.last_tasks == {"a": 2, "b": 1, "c": 3}
    assert (program.cmx_peak, program.scratch_bytes) == (64, 128)
