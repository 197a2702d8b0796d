"""docs/kernel-gallery.md: every form of every kernel of the library, with plan, cost and a picture of its pipeline.

`python -m tools.gallery` writes the page; `--check` compares it and exits with 1 where it is not today's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from npuc.authoring.cost import cost_of, timed
from npuc.authoring.words import sizes_text
from npuc.tile import Plan, TraceCache
from npukernels import registry
from npukernels.forms import FORMS, Form
from npurt.target import Target, load_target
from npurt.timing import Job, Times

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kernel-gallery.md"
TARGET = "npu40xx"
WIDTH = 64  # characters of a picture
BUSY, SOME, IDLE = "#", "+", "."

HEAD = f"""# The kernels of the library
Made from the library by `python -m tools.gallery`; the forms are those of `npuc kernel list`. Each example is small, so
that all of its work is seen: three blocks of eight rows where a kernel works in rows. Times are those of {TARGET}, and
rest in part on assumed numbers (`npuc targets {TARGET}`).

A picture shows the example's queues in time: `{BUSY}` busy, `{SOME}` busy in part, `{IDLE}` idle. The buffers are those
of one program; a kernel in a model takes larger blocks, as many as fit.
"""


def page(target: Target) -> str:
    """The whole page."""
    traces = TraceCache()
    parts = [HEAD]
    known = ""
    for form in FORMS:
        spec = registry.get(form.kernel)
        if spec.name != known:
            known = spec.name
            summary = " ".join((spec.kernel.__doc__ or "").strip().split("\n\n")[0].split())
            parts.append(f"## {spec.name}\n{summary}\n\nArrays: `{spec.form}`. Family: {spec.family}.\n")
        parts.append("\n".join(_form(form, target, traces)) + "\n")
    return "\n".join(parts)


def _form(form: Form, target: Target, traces: TraceCache) -> Iterator[str]:
    kernel, dtype = registry.get(form.kernel).kernel, form.dtypes[0]
    example = form.example(dtype)
    made = cost_of(kernel, example, target, cache=traces)
    plan = kernel.trace(example.types, example.params, cache=traces).plan()
    arrays = ", ".join("none" if type_ is None else str(type_) for type_ in example.types)
    yield f"### {form.kernel}: {form.form}"
    yield f"Element types: {', '.join(each.label for each in form.dtypes)}. Example: `{form.kernel}({arrays})` with"
    yield f"{sizes_text(example.params)}."
    yield ""
    yield "```"
    yield from _plan(plan)
    yield f"{made.seconds * 1e6:.2f} us, {made.ddr_bytes} bytes across DDR, {made.tasks} tasks"
    yield from picture(*timed(kernel, example, target, cache=traces))
    yield "```"


def _plan(plan: Plan) -> Iterator[str]:
    yield f"{plan.programs} programs, {plan.bytes} bytes on-chip each"
    for buffer in plan.buffers:
        shape = f"{buffer.dtype}{list(buffer.shape)}"
        life = f"tasks {buffer.first}-{buffer.last}"
        yield f"  {buffer.name:<12} {shape:<18} {buffer.nbytes:>7} B  {buffer.memory}  {life}"


def picture(job: Job, times: Times) -> Iterator[str]:
    """One line for each queue: how much of each slice of the makespan it is busy."""
    edges = np.linspace(0, max(times.makespan, 1), WIDTH + 1)
    for number, name in enumerate(job.queues):
        mine = job.queue == number
        start, end = times.start[mine][:, None], times.release[mine][:, None]
        inside = np.clip(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0, None).sum(0)
        share = inside / (edges[1] - edges[0])
        marks = "".join(BUSY if part > 0.75 else SOME if part > 0.02 else IDLE for part in share.tolist())
        yield f"  {name:<8} |{marks}|"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gallery", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare and write nothing")
    options = parser.parse_args(arguments)
    today = page(load_target(TARGET))
    if options.check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == today
        if not same:
            print(f"{PAGE.relative_to(ROOT)} is not today's: python -m tools.gallery")
        return int(not same)
    PAGE.write_text(today, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
