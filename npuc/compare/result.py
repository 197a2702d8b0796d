"""What a comparison found, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from npuc.compare.device import GroupFinding, Tally
from npuc.compare.stages import StepFinding
from npuc.compare.tolerance import Difference


@dataclass(frozen=True)
class Result:
    """The result of `npuc check`.

    parts: what was compared end to end. tokens: greedy choices of onnxruntime, and of the device after the same tokens;
    None for a plain graph. step, group: the first of each that diverges. blob: why the blob is not what the model
    compiles to, with the first lines of the difference. tally: of the groups, None where none was looked at.
    """

    tolerance: str
    parts: Mapping[str, Difference]
    tokens: tuple[list[int], list[int]] | None = None
    step: StepFinding | None = None
    group: GroupFinding | None = None
    blob: tuple[str, ...] = ()
    tally: Tally | None = None

    @property
    def agrees(self) -> bool:
        """Whether all is within the tolerance."""
        whole = all(part.within for part in self.parts.values())
        return whole and self.step is None and self.group is None and not self.blob

    def lines(self) -> list[str]:
        """The human form."""
        head = "agrees with onnxruntime" if self.agrees else "diverges from onnxruntime"
        lines = [f"{head} (tolerance: {self.tolerance})"]
        width = max((len(name) for name in self.parts), default=0)
        for name, part in self.parts.items():
            mark = "ok  " if part.within else "FAIL"
            lines.append(f"  {mark} {name:{width}} {list(part.shape)}: {part}")
            if part.undefined:
                lines.append(f"       {part.undefined} values are NaN in onnxruntime and not compared")
        if self.tokens is not None:
            same = sum(a == b for a, b in zip(*self.tokens, strict=True))
            lines.append(f"  greedy tokens: {same} of {len(self.tokens[0])} equal")
        lines += self._findings()
        return lines

    def _findings(self) -> list[str]:
        if self.blob:
            return list(self.blob)
        if self.step is not None:
            return [str(self.step)]
        if self.group is not None:
            return ["the steps of the graph keep the result", *self.group.lines()]
        if self.tally is None:
            return []
        lines = [f"the steps of the graph keep the result; all {self.tally.compared} values of node groups are right"]
        if self.tally.drifted:
            lines.append(f"{self.tally.drifted} of them only for the device's own inputs: rounding has added up before")
        if not self.agrees:
            lines.append("the error grows from run to run, or comes from what the probes change")
        return lines

    def to_json(self) -> dict[str, Any]:
        found = {
            "agrees": self.agrees,
            "tolerance": self.tolerance,
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            "tokens": None if self.tokens is None else {"onnxruntime": self.tokens[0], "device": self.tokens[1]},
            "step": None if self.step is None else asdict(self.step),
            "group": None if self.group is None else asdict(self.group),
            "blob": list(self.blob),
            "compared": 0 if self.tally is None else self.tally.compared,
            "drifted": 0 if self.tally is None else self.tally.drifted,
        }
        return {key: _finite(value) for key, value in found.items()}


def _finite(value: Any) -> Any:
    """JSON has no infinities: they become texts."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
