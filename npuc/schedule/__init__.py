"""From a task graph to a program: addresses, dependencies, barriers. `schedule` is the one door."""

from npuc.schedule.errors import OverflowRefused, PinRefused, ScheduleBroken, ScheduleRefused
from npuc.schedule.limits import Limits, ScheduleOptions, Ways, limits_of
from npuc.schedule.pipeline import schedule, schedule_within
from npuc.tasks.program import Barrier, Effort, EntryProgram, Spills, Sync

__all__ = [
    "Barrier",
    "Effort",
    "EntryProgram",
    "Limits",
    "OverflowRefused",
    "PinRefused",
    "ScheduleBroken",
    "ScheduleOptions",
    "ScheduleRefused",
    "Spills",
    "Sync",
    "Ways",
    "limits_of",
    "schedule",
    "schedule_within",
]
