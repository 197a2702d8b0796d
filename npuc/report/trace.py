"""A run as a Chrome trace, which Perfetto opens: one process per entry, one thread per queue.

Each queue's events, stalls among them, follow each other without a gap from 0 to the end, so that their durations sum
to the makespan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from npurt.timing import Stall, Timing
from npurt.timing.result import STALL_NAMES

NO_NODE = "(no node)"
_MICROSECOND = 10**6  # picoseconds


def write_trace(path: Path, runs: Sequence[tuple[Timing, Sequence[tuple[int, int]]]]) -> None:
    """runs: timings with the occupancy of the scratchpad. The file appears whole or not at all."""
    from npuc.emit.atomic import atomic_file

    events = [event for pid, (timing, levels) in enumerate(runs, 1) for event in _entry(pid, timing, levels)]
    with atomic_file(path) as file:
        file.write(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, separators=(",", ":")).encode())


def trace_events(timing: Timing) -> Iterator[dict[str, Any]]:
    """The complete events of one run, one queue after the other: name, cat, ph, tid, ts, dur (microseconds), args."""
    times = timing.times
    for number, queue in enumerate(timing.job.queues):
        at = 0
        for task in (timing.job.queue == number).nonzero()[0].tolist():
            start, release = int(times.start[task]), int(times.release[task])
            if start > at:
                yield _event(number, _stall(timing, task), "stall", at, start, {})
            args = {"task": task} | ({} if timing.active[task] else {"skipped": True})
            yield _event(number, timing.nodes[task] or NO_NODE, queue, start, release, args)
            at = release
        if at < timing.makespan:
            yield _event(number, "idle", "idle", at, timing.makespan, {})


def _entry(pid: int, timing: Timing, levels: Sequence[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    yield {"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": timing.entry}}
    for number, queue in enumerate(timing.job.queues):
        yield {"name": "thread_name", "ph": "M", "pid": pid, "tid": number, "args": {"name": queue}}
    for event in trace_events(timing):
        yield event | {"pid": pid}
    for time, level in levels:
        yield {"name": "CMX", "ph": "C", "pid": pid, "ts": time / _MICROSECOND, "args": {"bytes": level}}


def _event(tid: int, name: str, cat: str, start: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name, "cat": cat, "ph": "X", "tid": tid, "ts": start / _MICROSECOND,
        "dur": (end - start) / _MICROSECOND, "args": args,
    }  # fmt: skip


def _stall(timing: Timing, task: int) -> str:
    reason = Stall(int(timing.times.reason[task]))
    if reason is Stall.WAIT:
        return f"wait {timing.job.queues[int(timing.job.queue[timing.times.cause[task]])]}"
    return STALL_NAMES[reason]
