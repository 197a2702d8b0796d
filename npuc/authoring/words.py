"""What the kernel commands print: trials, costs and tunings for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from npuc.answers import plain_params
from npuc.authoring.cost import KernelCost
from npuc.authoring.trial import Trial
from npuc.authoring.tune import Tried, Tuning

MOST_ROWS = 12  # of a tuning's table


def trial_json(trial: Trial) -> dict[str, Any]:
    return {"kernel": trial.kernel, "good": trial.good, "written": [asdict(each) for each in trial.written]}


def trial_text(trial: Trial) -> str:
    lines = []
    for each in trial.written:
        verdict = "ok  " if each.good else "FAIL"
        bits = "device = eager, bit for bit" if each.equal else "the device's bits differ from the eager run's"
        lines.append(f"{verdict} {trial.kernel}: {each.name} {each.type}: error {each.error:.2g}, "
                     f"{each.bound:.2g} allowed; {bits}")  # fmt: skip
        if not each.good and each.equal:
            lines.append(f"     at {list(each.at)}: {each.found:.6g} instead of {each.expected:.6g}")
    return "\n".join(lines)


def cost_json(cost: KernelCost) -> dict[str, Any]:
    return {
        "kernel": cost.kernel, "params": plain_params(cost.params), "target": cost.target,
        "makespan_us": cost.seconds * 1e6, "ddr_bytes": cost.ddr_bytes, "on_chip_peak": cost.peak, "tasks": cost.tasks,
        "queues": [
            {"name": q.name, "tasks": q.tasks, "busy_us": q.seconds * 1e6, "cycles": round(q.cycles)}
            for q in cost.queues
        ],
        "assumed": list(cost.assumed),
    }  # fmt: skip


def cost_text(cost: KernelCost) -> str:
    head = f"{cost.kernel}({sizes_text(cost.params)}) on {cost.target}: {cost.seconds * 1e6:.2f} us"
    lines = [head, f"  {'queue':<9}{'tasks':>7}{'busy us':>10}{'cycles':>10}{'share':>7}"]
    for queue in cost.queues:
        share = queue.seconds / cost.seconds if cost.seconds else 0.0
        lines.append(f"  {queue.name:<9}{queue.tasks:>7}{queue.seconds * 1e6:>10.2f}{queue.cycles:>10.0f}{share:>7.0%}")
    lines.append(f"  {cost.ddr_bytes} bytes cross DDR, {cost.peak} bytes on-chip at most")
    if cost.assumed:
        lines.append(f"  rests on {len(cost.assumed)} assumed numbers (npuc targets {cost.target} shows them)")
    return "\n".join(lines)


def tuning_json(tuning: Tuning) -> dict[str, Any]:
    given = None if tuning.given is None else _tried_json(tuning.given)
    return {
        "kernel": tuning.kernel.name, "target": tuning.target.name, "fixed": plain_params(tuning.fixed),
        "arrays": ["none" if type_ is None else str(type_) for type_ in tuning.example.types],
        "winner": _tried_json(tuning.winner), "given": given, "why": tuning.reason,
        "tried": [_tried_json(each) for each in tuning.tried],
    }  # fmt: skip


def _tried_json(tried: Tried) -> dict[str, Any]:
    return {
        "sizes": plain_params(tried.sizes), "makespan_us": None if tried.seconds is None else tried.seconds * 1e6,
        "ddr_bytes": tried.ddr_bytes, "on_chip_peak": tried.peak, "tasks": tried.tasks, "why_not": tried.why,
        "cached": tried.cached,
    }  # fmt: skip


def tuning_text(tuning: Tuning) -> str:
    """The fastest candidates, the one that the example has, and why the winner wins."""
    timed = sorted((each for each in tuning.tried if each.seconds is not None), key=lambda each: each.seconds or 0.0)
    arrays = ", ".join("none" if type_ is None else str(type_) for type_ in tuning.example.types)
    lines = [f"{tuning.kernel.name}({arrays}) on {tuning.target.name}"]
    lines.append(f"  {len(tuning.tried)} candidates, {_omitted(tuning)}")
    lines.append(f"  {'us':>10}{'tasks':>7}{'DDR bytes':>11}{'on-chip':>9}  sizes")
    lines += [_tried_text(each) for each in timed[:MOST_ROWS]]
    if len(timed) > MOST_ROWS:
        lines.append(f"  {len(timed) - MOST_ROWS} slower ones")
    if tuning.given is not None:
        lines.append(f"{_tried_text(tuning.given)}  (the example's own)")
    lines.append(f"winner: {sizes_text(tuning.winner.sizes)}: {tuning.reason}")
    return "\n".join(lines)


def _omitted(tuning: Tuning) -> str:
    cached = sum(1 for each in tuning.tried if each.cached)
    refused = sum(1 for each in tuning.tried if each.seconds is None)
    return f"{cached} from the cache, {refused} do not fit"


def _tried_text(tried: Tried) -> str:
    if tried.seconds is None:
        return f"  {'-':>10}{'':>27}  {sizes_text(tried.sizes)}: {tried.why}"
    return (
        f"  {tried.seconds * 1e6:>10.2f}{tried.tasks:>7}{tried.ddr_bytes:>11}{tried.peak:>9}  {sizes_text(tried.sizes)}"
    )


def sizes_text(sizes: Mapping[str, Any]) -> str:
    """Parameters in words; a function by its name."""
    return ", ".join(f"{name}={_value(value)}" for name, value in sizes.items()) or "no parameters"


def _value(value: Any) -> str:
    return str(getattr(value, "__name__", value)) if callable(value) else str(value)
