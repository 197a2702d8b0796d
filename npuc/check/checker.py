"""The door of the checker: all proofs about one program, in the order in which they build on each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuc.check.finding import Finding
from npuc.check.hazards import hazards
from npuc.check.memory import check_placement, check_regions
from npuc.check.order import complete_before, completes, forward
from npuc.check.table import resolve
from npurt.target import Target

if TYPE_CHECKING:
    from npuc.tasks.program import EntryProgram


@dataclass(frozen=True)
class BarrierLimits:
    """ids: physical barriers of the target; slots: most producers, and most consumers, of one; slots_total: of both
    together.
    """

    ids: int
    slots: int
    slots_total: int


class CheckFailed(Exception):
    """A program broke a rule; `findings` has all of them."""

    def __init__(self, entry: str, findings: list[Finding]) -> None:
        shown = "\n".join(f"  {finding}" for finding in findings[:20])
        more = f"\n  and {len(findings) - 20} more" if len(findings) > 20 else ""
        super().__init__(f"entry {entry}: {len(findings)} findings\n{shown}{more}")
        self.findings = findings


def check(program: EntryProgram, target: Target) -> list[Finding]:
    """Everything that is wrong with the program on one tile of the target; an empty list is a proof. See
    `check_within`.
    """
    barriers = target.barriers
    limits = BarrierLimits(barriers.per_tile, barriers.most_each, barriers.slot_sum)
    return check_machine(program, target) + check_within(program, limits)


def check_machine(program: EntryProgram, target: Target) -> list[Finding]:
    """Engines, queues and memory sizes against the target."""
    findings = []
    for index, (task, queue) in enumerate(zip(program.tasks, program.queues, strict=False)):
        if target.queues.get(task.engine) != queue:
            due = target.queues.get(task.engine)
            text = f"task {index} of engine {task.engine} stands in queue {queue}, the target has {due}"
            findings.append(Finding("queue", text))
    for memory in program.peaks:
        size = target.on_chip.get(memory)
        if size != program.memory_bytes.get(memory):
            text = f"{memory} is taken to have {program.memory_bytes.get(memory)} B, the target has {size}"
            findings.append(Finding("memory-size", text))
    return findings


def check_within(program: EntryProgram, limits: BarrierLimits) -> list[Finding]:
    """Everything that is wrong with the program apart from the machine it is for; an empty list is a proof.

    Proven, for every value of the step block: local buffers lie in their memory and share no bytes while live; ids,
    counts, start_after and slots agree with the tasks; the program runs to completion in every order the device may
    choose; each such order computes what trace order computes.
    """
    findings = check_regions(program.tasks)
    findings += check_placement(program.tasks, program.offsets, program.peaks, program.memory_bytes)
    if not len(program.tasks) == len(program.queues) == len(program.sync):
        lengths = f"{len(program.tasks)} tasks, {len(program.queues)} queues, {len(program.sync)} syncs"
        return [*findings, Finding("length", lengths)]
    rows, table_findings = resolve(program.barriers, program.sync, limits.ids, limits.slots, limits.slots_total)
    findings += table_findings
    if table_findings:
        return findings  # the order rests on the table
    findings += completes(program.queues, program.barriers, [sync.start_after for sync in program.sync], rows)
    backward = forward(rows)
    findings += backward
    if not backward:
        names, place, done = complete_before(program.queues, rows)
        findings += hazards(program.tasks, program.queues, program.offsets, names, place, done)
    return findings


def require(program: EntryProgram, target: Target) -> None:
    """Raises CheckFailed unless the program is proven."""
    findings = check(program, target)
    if findings:
        raise CheckFailed(program.entry, findings)
