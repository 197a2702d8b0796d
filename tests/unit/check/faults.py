"""All ways to break a good program. Each takes a program and a place, and gives the broken program and the rules of
which at least one must fire.

The faults are real by construction: they break a rule of the table by themselves, or take away an ordering that the
scheduler kept because two tasks touch the same bytes and nothing else orders them.
"""

from __future__ import annotations

from collections.abc import Callable

from npuc.schedule import EntryProgram
from tests.unit.check import barrier_faults, memory_faults

Fault = Callable[[EntryProgram, int], tuple[EntryProgram, set[str]]]

FAULTS: list[Fault] = [
    barrier_faults.lost_wait,
    barrier_faults.lost_post,
    barrier_faults.extra_wait,
    barrier_faults.too_many_producers,
    barrier_faults.too_few_consumers,
    barrier_faults.other_id,
    barrier_faults.id_too_high,
    barrier_faults.starts_too_early,
    barrier_faults.starts_too_late,
    barrier_faults.rows_swapped,
    barrier_faults.syncs_swapped,
    barrier_faults.dropped_barrier,
    barrier_faults.dropped_consumer,
    barrier_faults.post_one_task_early,
    barrier_faults.stuck,
    memory_faults.shortened_life,
    memory_faults.shifted_address,
    memory_faults.beyond_memory,
    memory_faults.reused_too_soon,
    memory_faults.wrong_peak,
    memory_faults.unplaced,
    memory_faults.region_too_long,
    memory_faults.wrong_queue,
    memory_faults.tasks_swapped,
]
