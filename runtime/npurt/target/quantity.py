"""Quantities of a target file: a number with its unit as text, so that a wrong unit is an error and not a factor."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)\s*(\S+)")

SIZE = {"B": 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3}
TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "cycles": 0.0}
FREQUENCY = {"MHz": 1e6, "GHz": 1e9}
RATE = {"GB/s": 1e9, "TB/s": 1e12, "B/cycle": 0.0}
ABSOLUTE_RATE = {unit: factor for unit, factor in RATE.items() if factor}  # of what has no clock
CLOCKED = ("cycles", "B/cycle")


@dataclass(frozen=True)
class Quantity:
    """A value in the base unit of its kind; clocked: counted in cycles of an engine, `at` makes it absolute."""

    value: float
    unit: str

    def at(self, clock: float) -> float:
        """Seconds or bytes per second, with the cycles of a clock in hertz."""
        if self.unit == "cycles":
            return self.value / clock
        return self.value * clock if self.unit == "B/cycle" else self.value


def parse_quantity(text: object, units: dict[str, float], *, positive: bool = False) -> Quantity:
    """`"300 ns"` with one of the given units; positive: zero is refused, too. ValueError says what is wrong."""
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f'{text!r} is no quantity; write a number and a unit, as "1 {next(iter(units))}"')
    number, unit = float(match[1]), match[2]
    if unit not in units:
        raise ValueError(f"{text!r} has the unit {unit!r}; one of {', '.join(units)} is due")
    if number < 0:
        raise ValueError(f"{text!r} is negative")
    if positive and number == 0:
        raise ValueError(f"{text!r} is zero")
    return Quantity(number if unit in CLOCKED else number * units[unit], unit)
