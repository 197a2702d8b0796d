"""The profile for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from npuc.report.vendor import vendor_text

_NODES = 10
_NUMBER = re.compile(r"\d+")
FAR = 0.2
"""A difference between the simulated and the estimated time, as a share, that is explained."""


def profile_text(found: Mapping[str, Any]) -> str:
    """found: as `profile_json` gives it. Lines ended by a newline."""
    lines = [f"target {found['target']}, latency of a transfer {found['dma_latency']}"]
    for entry in found["entries"]:
        lines += ["", *_entry(entry)]
    if found["tokens"]:
        lines += ["", *vendor_text(found["tokens"])]
    if found["host_steps"]:
        lines += ["", f"not timed: {len(found['host_steps'])} steps of the host ({', '.join(found['host_steps'])})"]
    assumed = sorted({key for entry in found["entries"] for key in entry["assumed"]})
    lines += ["", f"rests on assumed numbers: {', '.join(assumed)}" if assumed else "rests on no assumed number"]
    return "".join(f"{line}\n" for line in lines)


def _entry(entry: Mapping[str, Any]) -> Iterator[str]:
    makespan = entry["makespan_us"]
    other = entry["makespan_other_latency_us"]
    yield (
        f"{entry['name']}  capacity {entry['capacity']}, n_past {entry['n_past']}, {entry['tasks']} tasks: "
        f"{makespan:.1f} us ({other:.1f} in the other reading of the latency)"
    )
    if entry["bound_us"] is not None:
        parts = ", ".join(f"{name} {time:.0f}" for name, time in entry["bound_parts_us"].items())
        yield f"  bound {entry['bound_us']:.1f} us, ratio {entry['bound_ratio']:.3f}  ({parts})"
    busiest = max(entry["resources_us"], key=lambda name: entry["resources_us"][name])
    estimate = entry["estimate_us"]
    if estimate is not None and makespan:
        yield f"  estimated from the graph alone {estimate:.1f} us, {100 * (estimate / makespan - 1):+.0f} %" + (
            f"; most by {furthest_part(entry)}" if abs(estimate / makespan - 1) > FAR else ""
        )
    stalled = next(queue for queue in entry["queues"] if queue["name"] == busiest)
    missing = makespan - entry["resources_us"][busiest]
    yield f"  {busiest} has most to do, {entry['resources_us'][busiest]:.1f} us" + (
        f"; the rest is {_stalls(stalled)}" if makespan and missing / makespan > FAR else ""
    )
    read, written = entry["ddr_read"], entry["ddr_written"]
    cmx, flags = entry["cmx"], entry["flags"]
    if flags is not None:
        yield (
            f"  {flags['tasks']} tasks act where a flag is set: with none set {flags['unset_makespan_us']:.1f} us, DDR "
            f"{flags['unset_ddr_bytes'] / 1e6:.2f} MB"
        )
    yield (
        f"  DDR {read / 1e6:.2f} MB read, {written / 1e6:.2f} MB written; "
        f"CMX peak {cmx['peak_bytes'] / 1024:.0f} KiB, mean {cmx['mean_bytes'] / 1024:.0f} KiB"
    )
    yield from _table(
        [("queue", "tasks", "busy", "work", "launch", "idle", "stalls")]
        + [
            (
                queue["name"], str(queue["tasks"]), f"{100 * queue['busy_us'] / makespan if makespan else 0:.1f} %",
                *(f"{queue[key]:.0f}" for key in ("work_us", "launch_us", "idle_us")), _stalls(queue),
            )
            for queue in entry["queues"]
        ]
    )  # fmt: skip
    yield from _table(
        [("from", "to", "transfers", "bytes")]
        + [(row["from"], row["to"], str(row["transfers"]), str(row["bytes"])) for row in entry["traffic"]]
    )
    yield from _table([("share", "us", "nodes", "bound by", "on the critical path"), *_kinds(entry["nodes"])])


def furthest_part(entry: Mapping[str, Any]) -> str:
    """The part of the estimate that is furthest from what the program has of it, in words."""
    parts: Mapping[str, Mapping[str, float]] = entry["estimate_parts_us"]
    name = max(parts, key=lambda part: abs(parts[part]["estimated"] - parts[part]["program"]))
    return f"{name}, {parts[name]['estimated']:.0f} us estimated and {parts[name]['program']:.0f} in the program"


def _kinds(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """The critical path by nodes that differ in numbers alone, such as those of equal layers; largest share first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in nodes:
        groups.setdefault((_NUMBER.sub("*", row["node"]) or "(no node)", row["bound_by"]), []).append(row)
    totals = [(sum(row["path_us"] for row in rows), key, rows) for key, rows in groups.items()]
    for time, (name, kind), rows in sorted(totals, key=lambda total: (-total[0], total[1]))[:_NODES]:
        share = sum(row["share"] for row in rows)
        label = name if len(rows) > 1 else rows[0]["node"] or name
        yield f"{100 * share:.1f} %", f"{time:.1f}", str(len(rows)), kind, label


def _stalls(queue: Mapping[str, Any]) -> str:
    rows = sorted(queue["stalls_us"].items(), key=lambda row: -row[1])
    return ", ".join(f"{name} {time:.0f}" for name, time in rows)


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        yield ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
