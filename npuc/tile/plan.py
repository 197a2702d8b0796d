"""What one program of a kernel needs: its local buffers and when they live, its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npuc.tile.template import Template


@dataclass(frozen=True, slots=True)
class PlanBuffer:
    """A local buffer. first, last: numbers of the first and last task that touch it. where: the author's file:line."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    memory: str
    where: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class PlanTask:
    """A task: its engine, what it does, and the author's file:line."""

    engine: str
    stage: str
    where: str


@dataclass(frozen=True)
class Plan:
    """The program that needs most. bytes: the largest sum of buffers that live at once. programs: size of the grid."""

    kernel: str
    programs: int
    bytes: int
    buffers: tuple[PlanBuffer, ...]
    tasks: tuple[PlanTask, ...]

    def __str__(self) -> str:
        lines = [f"{self.kernel}: {self.programs} programs, {self.bytes} bytes on-chip each"]
        for buffer in self.buffers:
            shape = f"{buffer.dtype}{list(buffer.shape)}"
            life = f"tasks {buffer.first}-{buffer.last}"
            lines.append(
                f"  {buffer.nbytes:>9} B  {buffer.memory}  {buffer.name:<16} {shape:<20} {life:<14} {buffer.where}"
            )
        lines += [
            f"  {number:>3} {task.engine:<8} {task.stage:<20} {task.where}" for number, task in enumerate(self.tasks)
        ]
        return "\n".join(lines)


def plan(kernel: str, programs: int, templates: Sequence[Template]) -> Plan:
    """The plan of the template with the highest peak."""
    plans = [_plan(kernel, programs, template) for template in templates]
    return max(plans, key=lambda made: made.bytes, default=Plan(kernel, programs, 0, (), ()))


def _plan(kernel: str, programs: int, template: Template) -> Plan:
    life: dict[int, list[int]] = {}
    for number, task in enumerate(template.tasks):
        for view in (*task.reads, *task.writes):
            life.setdefault(view.slot, []).append(number)
    buffers = tuple(
        PlanBuffer(b.name, b.dtype.label, b.shape, b.nbytes, b.memory, b.loc.short, life[b.slot][0], life[b.slot][-1])
        for b in template.buffers
        if b.slot in life
    )
    peak = max(
        (sum(_aligned(b.nbytes) for b in buffers if b.first <= n <= b.last) for n in range(len(template.tasks))),
        default=0,
    )
    tasks = tuple(PlanTask(task.engine, task.stage, task.loc.short) for task in template.tasks)
    return Plan(kernel, programs, peak, buffers, tasks)


def _aligned(nbytes: int, alignment: int = 64) -> int:
    """Buffers start at multiples of 64 bytes (npuc.tasks.Buffer.align)."""
    return -(-nbytes // alignment) * alignment
