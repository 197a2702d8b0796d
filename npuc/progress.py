"""How far a long piece of work is: the one callback that all stages take."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str, float | None], None]
"""Called with a step in words, and the share of it (or of all steps) that is done, 0 to 1, or None. It may be called
often: who shows it decides how much of it is seen."""


def silent(step: str, share: float | None) -> None:
    """Shows nothing."""
