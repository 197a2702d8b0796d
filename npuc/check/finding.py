"""One thing that is wrong with a program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """rule: short name of the broken rule. message: what is wrong, with task indices, names and bytes."""

    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"
