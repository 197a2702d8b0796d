"""What `npuc diff --fail-on` takes: a number that may not grow by more than so much."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# name in a threshold -> totals of an entry that it adds up
METRICS = {
    "cmx": ("cmx_peak",),
    "ddr": ("ddr_read", "ddr_written"),
    "scratch": ("scratch",),
    "barriers": ("barriers",),
    "tasks": ("tasks",),
}
_FORM = re.compile(r"(\w+)\s*>\s*(\d+(?:\.\d+)?)(%?)")


class ThresholdError(ValueError):
    """A threshold that cannot be read."""


@dataclass(frozen=True)
class Threshold:
    """metric: of METRICS; limit: growth that is still allowed, in percent of the old value or in units."""

    metric: str
    limit: float
    percent: bool
    text: str

    def exceeded(self, was: int, now: int) -> bool:
        """Growth from nothing exceeds every percentage."""
        growth = now - was
        if not self.percent:
            return growth > self.limit
        return growth * 100 > self.limit * was


def parse_thresholds(texts: Sequence[str]) -> list[Threshold]:
    """`tasks>1%`, `cmx>4096`; several in one text are separated by commas. ThresholdError where one is malformed."""
    found = []
    for text in ",".join(texts).split(","):
        word = text.strip()
        if not word:
            continue
        match = _FORM.fullmatch(word)
        if match is None or match[1] not in METRICS:
            raise ThresholdError(
                f"--fail-on {word!r}: write METRIC>NUMBER or METRIC>NUMBER%, METRIC one of {', '.join(METRICS)}"
            )
        found.append(Threshold(match[1], float(match[2]), match[3] == "%", word))
    return found


def total(totals: Mapping[str, int], metric: str) -> int:
    """A metric of one entry."""
    return sum(totals.get(key, 0) for key in METRICS[metric])


def change(was: int, now: int) -> str:
    """``30 -> 34 (+13.3%)``."""
    return f"{was} -> {now}" + (f" ({(now - was) / was:+.1%})" if was else "")
