"""`npuc profile`: where the time of a blob's entries goes, against a bound that tiles cannot move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npuc.report.occupancy import occupancy
from npuc.report.vendor import BENCHMARK_TARGET, is_benchmark, token_ratios
from npurt import load
from npurt.abi.records import Step
from npurt.errors import DeviceError
from npurt.image import Entry, Image
from npurt.target import Target, load_target
from npurt.timing import EntryTimer, Timing, shares

READINGS = ("held", "overlapped")
_US = 1e-6  # of a picosecond
_STEPS = 200  # of the occupancy in the JSON


@dataclass(frozen=True)
class Run:
    """One entry at one step: both readings of the DMA latency, and (picoseconds, bytes) of the scratchpad.

    In both every flag lets its tasks act. flagged: tasks that a flag decides about; unset: the run in which none acts.
    """

    entry: Entry
    chosen: Timing
    other: Timing
    levels: Sequence[tuple[int, int]]
    flagged: int
    unset: Timing | None


@dataclass(frozen=True)
class Profile:
    image: Image
    target: Target
    reading: str
    runs: tuple[Run, ...]


def profile(
    path: str | Path, *, entry: str | None = None, target: str | None = None, n_past: int | None = None,
    reading: str = "held",
) -> Profile:  # fmt: skip
    """entry: None for all. target: None for the blob's own; else a name or the path of a .toml. n_past: None for full
    caches. reading: whether a port is held by the latency of its transfers ("held") or not ("overlapped").

    Errors: BlobError, TargetError; DeviceError for an unknown entry or an impossible n_past.
    """
    image = load(path)
    if entry is not None and entry not in image.entries:
        raise DeviceError(f"no entry {entry!r}: there are {', '.join(image.entries)}")
    machine = load_target(target or image.metadata.target)
    runs = []
    for name, row in image.entries.items():
        if entry is not None and name != entry:
            continue
        timer = EntryTimer(image, row, machine)
        past = None if n_past is None or (entry is None and n_past > row.max_past) else n_past
        timings = {kind: timer.run(past, held=kind == "held") for kind in READINGS}
        chosen = timings[reading]
        other = timings[READINGS[1 - READINGS.index(reading)]]
        unset = timer.run(past, held=reading == "held", taken=False) if timer.flagged else None
        runs.append(Run(row, chosen, other, occupancy(image, row, chosen), timer.flagged, unset))
    return Profile(image, machine, reading, tuple(runs))


def profile_json(found: Profile) -> dict[str, Any]:
    """What `npuc profile --json` prints; times in microseconds.

    target, dma_latency, entries (see `_entry`), tokens (SmolLM2-135M alone, see `token_ratios`), host_steps: operators
    that the host computes between the entries, which have no time.
    """
    meta = found.image.meta
    bounds = {row["name"]: row.get("bound") for row in meta["entries"]}
    estimates = {row["name"]: row.get("estimate") for row in meta["entries"]}
    own = found.target.name == meta["target"]
    entries = [
        _entry(run, _parts(bounds[run.entry.name], run, found), _estimate(estimates[run.entry.name], run, found, own))
        for run in found.runs
    ]
    makespans = {row["name"]: row["makespan_us"] for row in entries}
    same = is_benchmark(meta) and found.target.name == BENCHMARK_TARGET
    return {
        "target": found.target.name,
        "dma_latency": found.reading,
        "entries": entries,
        "tokens": token_ratios(makespans, found.reading) if same else [],
        "host_steps": [] if found.image.host is None else [step.op for step in found.image.host.host_steps],
    }


def _parts(bound: Mapping[str, Any] | None, run: Run, found: Profile) -> dict[str, float] | None:
    """The bound of the run's step, on the target and in the reading of the profile, microseconds by part. None where
    the blob says nothing of its graph."""
    from npuc.bound import Canonical  # onnx-ir takes a while to load

    if bound is None or "canonical" not in bound:
        return None
    held, n_past = found.reading == "held", run.chosen.step[Step.N_PAST]
    parts = Canonical.from_json(bound["canonical"]).bound(found.target, n_past=n_past, held=held).parts
    return {name: seconds * 1e6 for name, seconds in parts.items()}


def _estimate(record: Mapping[str, Any] | None, run: Run, found: Profile, own: bool) -> dict[str, Any]:
    """The analytical estimate, which the blob has for full caches on its own target: None for anything else.

    estimate_us; estimate_parts_us: its parts, each with what the program has of it.
    """
    if record is None or not own or record["n_past"] != run.chosen.step[Step.N_PAST]:
        return {"estimate_us": None, "estimate_parts_us": None}
    queues = dict(zip((info.kind for info in reversed(run.chosen.info)), reversed(run.chosen.queues), strict=True))
    has = {
        "ddr": queues["dma"].held, "matrix": queues["matrix"].work, "vector": queues["vector"].work,
        "launches": queues["vector"].launch + queues["matrix"].launch,
    }  # fmt: skip
    parts = record["parts_us"][found.reading]
    return {
        "estimate_us": record["us"][found.reading],
        "estimate_parts_us": {name: {"estimated": parts[name], "program": has[name] * _US} for name in parts},
    }


def _entry(run: Run, parts: Mapping[str, float] | None, estimate: Mapping[str, Any]) -> dict[str, Any]:
    """One entry.

    makespan_us, and that of the other reading; bound_us, bound_ratio, bound_parts_us: None where the blob has no bound;
    resources_us: what each queue has to do; estimate_us, estimate_parts_us: a second time from the graph and the target
    alone; flags: None where no task has a device predicate, else how many have,
    and the run in which they let nothing act (all other figures are of the run in which they let all act); queues:
    busy_us, stalls_us by reason and idle_us sum to the makespan; path_us: of the critical path by queue; nodes: of it
    by graph node.
    """
    timing = run.chosen
    limit = max(parts.values()) if parts else None
    makespan = timing.makespan * _US
    by_node, by_queue = shares(timing)
    return {
        "name": timing.entry,
        "capacity": run.entry.capacity,
        "makespan_us": makespan,
        "bound_us": limit,
        "bound_ratio": makespan / limit if limit else None,
        "bound_parts_us": parts,
        "resources_us": {queue.name: queue.held * _US for queue in timing.queues},
        "ddr_bytes": timing.ddr_read + timing.ddr_written,
        "tasks": len(run.entry.tasks),
        "rows": run.entry.rows,
        "n_past": timing.step[Step.N_PAST],
        "makespan_other_latency_us": run.other.makespan * _US,
        **estimate,
        "ddr_read": timing.ddr_read,
        "ddr_written": timing.ddr_written,
        "flags": None
        if run.unset is None
        else {
            "tasks": run.flagged,
            "unset_makespan_us": run.unset.makespan * _US,
            "unset_ddr_bytes": run.unset.ddr_read + run.unset.ddr_written,
        },
        "queues": [
            {
                "name": queue.name, "tasks": queue.tasks, "busy_us": queue.busy * _US, "work_us": queue.work * _US,
                "launch_us": queue.launch * _US, "idle_us": queue.idle * _US,
                "stalls_us": {name: time * _US for name, time in queue.stalls.items()},
            }
            for queue in timing.queues
        ],
        "traffic": [
            {"from": row.source, "to": row.sink, "transfers": row.transfers, "bytes": max(row.read, row.written)}
            for row in timing.traffic
        ],
        "path_us": {name: share.time * _US for name, share in by_queue.items()},
        "nodes": [
            {"node": node, "path_us": share.time * _US, "share": share.time / max(timing.makespan, 1), "bound_by": kind}
            for (node, share), kind in zip(by_node.items(), _limits(timing, list(by_node)), strict=True)
        ],
        "cmx": _occupancy(run.levels),
        "assumed": list(timing.assumed),
    }  # fmt: skip


def _limits(timing: Timing, nodes: Sequence[str]) -> list[str]:
    """What takes most of the busy time of each node: "bandwidth", "latency", "matrix", "vector" or "launch"."""
    number = {node: at for at, node in enumerate(nodes)}
    of_task = np.array([number.get(node, len(nodes)) for node in timing.nodes], np.int64)
    costs, queue = timing.job.costs, timing.job.queue
    moves = np.isin(queue, [at for at, info in enumerate(timing.info) if info.kind == "dma"])
    matrix = np.isin(queue, [at for at, info in enumerate(timing.info) if info.kind == "matrix"])
    columns = {
        "bandwidth": costs.work * moves,
        "latency": costs.latency * moves,
        "matrix": costs.work * matrix,
        "vector": costs.work * ~(moves | matrix),
        "launch": costs.setup,
    }
    totals = np.stack([np.bincount(of_task, column, len(nodes) + 1) for column in columns.values()])
    names = list(columns)
    return [names[at] for at in totals.argmax(0)[: len(nodes)].tolist()]


def _occupancy(levels: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """peak_bytes, mean_bytes (over time), and at most 200 [microseconds, bytes] steps."""
    if not levels:
        return {"peak_bytes": 0, "mean_bytes": 0.0, "steps": []}
    times, sizes = np.array(levels, np.int64).T
    whole = max(int(times[-1]), 1)
    mean = float((sizes[:-1] * np.diff(times)).sum() / whole)
    pace = -(-len(levels) // _STEPS)
    steps = [[time * _US, size] for time, size in levels[::pace]]
    return {"peak_bytes": int(sizes.max()), "mean_bytes": mean, "steps": steps}
