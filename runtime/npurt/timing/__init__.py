"""The machine model's cycles: timing-only runs of a blob's entries, without data and without weights."""

from npurt.timing.entry import EntryTimer, time_entry
from npurt.timing.job import PS, Costs, Issue, Job, Shared, Stall, Times
from npurt.timing.machine import simulate
from npurt.timing.path import critical_path, shares
from npurt.timing.result import QueueTime, Timing, Traffic

__all__ = [
    "PS",
    "Costs",
    "EntryTimer",
    "Issue",
    "Job",
    "QueueTime",
    "Shared",
    "Stall",
    "Times",
    "Timing",
    "Traffic",
    "critical_path",
    "shares",
    "simulate",
    "time_entry",
]
