"""Errors of the scheduler: a refused graph (the author can act) and a broken invariant (the scheduler is wrong)."""

from __future__ import annotations


class ScheduleRefused(Exception):
    """The graph cannot be scheduled on the target as it stands; the message says what would work."""


class OverflowRefused(ScheduleRefused):
    """Local buffers that live at the same time do not fit their memory.

    memory: its name. needed, available: bytes. task: index in trace order where the memory is fullest. crowded: where
    all fit in sum, the fullest task of each buffer that found no room.
    """

    def __init__(
        self, message: str, *, memory: str, needed: int, available: int, task: int, crowded: tuple[int, ...] = ()
    ) -> None:
        super().__init__(message)
        self.memory = memory
        self.needed = needed
        self.available = available
        self.task = task
        self.crowded = crowded


class CodeRefused(ScheduleRefused):
    """Programs of vector code are larger than the target's engine can hold."""


class PinRefused(ScheduleRefused):
    """Buffers that their author placed by hand share bytes while both are live, or lie outside their memory."""


class ScheduleBroken(AssertionError):
    """An internal error: the scheduler produced a program that cannot run. The message holds the state for a bug
    report.
    """
