"""What people are told of a compilation, and the rows of its metadata that name kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.graph.entry import EntryGraph, ModelGraphs
from npuc.lower.entry import Lowered
from npuc.tasks.program import EntryProgram
from npurt.target import Target


def node_rows(entries: Sequence[EntryGraph], lowered: Sequence[Lowered]) -> list[dict[str, Any]]:
    """For the report: which kernel, with which tile sizes, computes each node."""
    rows = []
    for entry, tasks in zip(entries, lowered, strict=True):
        for call, choice in tasks.choices:
            sizes = {name: value for name, value in choice.params.items() if isinstance(value, int | str | bool)}
            why = {} if call.way is None else {"why": call.way.why}
            rows.append({"entry": entry.label, "node": call.node, "kernel": choice.kernel, "tile": sizes, **why})
    return rows


def summary_lines(
    graphs: ModelGraphs, programs: Sequence[EntryProgram], target: Target, size: int, seconds: float
) -> list[str]:
    """Chunk, capacities, bytes of the blob, peak of the scratchpad, time: a line each."""
    peak = max(program.cmx_peak for program in programs)
    whole = target.memories["cmx"].bytes
    llm = graphs.llm
    lines = []
    if llm is not None:
        lines += [
            f"chunk       {llm.chunk} rows, prompts up to {llm.max_prompt_len} tokens",
            f"capacities  {', '.join(str(c) for c in llm.capacities)} tokens",
        ]
    else:
        names = [entry.label for entry in graphs.entries]
        more = f" ({len(names)} runs, up to {names[-1]})" if len(names) > 1 else ""
        parts = [program for program in programs if program.entry.startswith("main.part")]
        if parts:
            more = f" in {len(parts)} parts, with steps of the host"
        tasks = sum(len(program.tasks) for program in parts or programs[:1])
        lines += [f"entry       main, {tasks} tasks{more}"]
    return [
        *lines,
        f"blob        {size / 1e6:.2f} MB",
        f"CMX peak    {peak / 1024:.0f} of {whole / 1024:.0f} KiB",
        f"time        {seconds:.1f} s",
    ]
