"""How far a program's times rest on each number of its machine: every one 25 % down and up.

    python -m benchmarks.sensitivity BLOB [--target npu40xx] [--dma-latency held]

Prints a table in Markdown: the change of a token (the smallest generate entry and the head) and of a prefill, in per
cent. A number that is zero is given another value, which the table names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import npurt
from npurt.image import Image
from npurt.target import Target, load_target, scaled
from npurt.timing import EntryTimer

STEP = 0.25
ZEROS = {"engines.dpu.launch": 500 / 1850e6, "sync.issue": 100e-9, "sync.latency": 100e-9}
"""What is put in the place of numbers that are zero, seconds: 500 cycles of the matrix engine, 100 ns."""
LEAST = 0.05
"""Changes below so many per cent, in all columns, are left out."""


@dataclass(frozen=True)
class Row:
    """One number. change: of the number, in words; token, prefill: per cent, for the change down and up, or the one."""

    key: str
    change: str
    assumed: bool
    token: tuple[float, ...]
    prefill: tuple[float, ...]

    @property
    def most(self) -> float:
        return max(map(abs, (*self.token, *self.prefill)))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sensitivity", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("blob", type=Path, metavar="BLOB")
    parser.add_argument("--target", metavar="T", help="a name or a .toml (the blob's)")
    parser.add_argument("--dma-latency", choices=("held", "overlapped"), default="held")
    options = parser.parse_args(words)
    image = npurt.load(options.blob)
    target = load_target(options.target or image.metadata.target)
    for line in table(measure(image, target, held=options.dma_latency == "held")):
        print(line)
    return 0


def measure(image: Image, target: Target, *, held: bool) -> list[Row]:
    """Every number that costs the program time, the one with the largest change first."""
    base = times(image, target, held)
    rows = []
    for key, figure in target.figures.items():
        if key in ZEROS and figure.text.strip('"').startswith("0"):
            changed = [_instead(target, key, ZEROS[key])]
            change = f"{figure.text.strip(chr(34))} -> {ZEROS[key] * 1e9:.0f} ns"
        else:
            changed = list(_changed(target, key))
            change = "-25 %, +25 %"
        if not changed:
            continue
        found = [times(image, machine, held) for machine in changed]
        token, prefill = (
            tuple(100 * (run[what] / base[what] - 1) if base[what] else 0.0 for run in found) for what in base
        )
        rows.append(Row(key, change, figure.assumed, token, prefill))
    return sorted((row for row in rows if row.most >= LEAST), key=lambda row: (-row.most, row.key))


def times(image: Image, target: Target, held: bool) -> Mapping[str, int]:
    """Picoseconds of a token and of a prefill; 0 for what the program has not."""
    spans = {
        name: EntryTimer(image, image.entries[name], target).run(held=held).makespan
        for name in ("prefill", _generate(image), "head")
        if name in image.entries
    }
    return {"token": spans.get(_generate(image), 0) + spans.get("head", 0), "prefill": spans.get("prefill", 0)}


def table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| number | change | token, % | prefill, % | source |"
    yield "| --- | --- | ---: | ---: | --- |"
    for row in rows:
        # a zero after rounding has no sign
        token, prefill = (
            ", ".join(f"{round(value, 1) + 0.0:+.1f}" for value in values) for values in (row.token, row.prefill)
        )
        yield f"| `{row.key}` | {row.change} | {token} | {prefill} | {'assumed' if row.assumed else 'given'} |"


def _generate(image: Image) -> str:
    """The generate entry of the smallest capacity."""
    names = [name for name in image.entries if name.startswith("generate.")]
    return min(names, key=lambda name: image.entries[name].capacity, default="")


def _changed(target: Target, key: str) -> Iterator[Target]:
    for factor in (1 - STEP, 1 + STEP):
        try:
            yield scaled(target, key, factor)
        except npurt.TargetError:  # no number that costs time
            return


def _instead(target: Target, key: str, seconds: float) -> Target:
    group, _, rest = key.partition(".")
    name, _, field = rest.rpartition(".")
    value: dict[str, Any] = {field: seconds}
    if group == "sync":
        return replace(target, sync=replace(target.sync, **value))
    engine = replace(target.engines[name], **value)
    return replace(target, engines={**target.engines, name: engine})


if __name__ == "__main__":
    sys.exit(main())
