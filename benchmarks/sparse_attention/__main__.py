"""Sparse attention on one core of ascend950 beside what is known of it.

    python -m benchmarks.sparse_attention [--target ascend950]

Prints a table in Markdown, which docs/credibility.md explains. No data are needed, nothing is measured on hardware.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.sparse_attention.cases import STEADY, Row, cases, measure
from benchmarks.sparse_attention.flags import flag_pairs
from benchmarks.sparse_attention.measure import Bench
from benchmarks.sparse_attention.memory import too_large
from npurt.target import Target, load_target


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sparse_attention", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--target", default="ascend950", metavar="T", help="a name or a .toml (ascend950)")
    target = load_target(parser.parse_args(words).target)
    for line in (*table(measure(target, list(cases()))), "", *notes(target)):
        print(line, flush=True)
    return 0


def table(rows: Iterator[Row]) -> Iterator[str]:
    """Shares of the cube's peak in per cent."""
    yield "| case | known | here | points | cycles a block | fitted |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for row in rows:
        case = row.case
        yield (
            f"| {case.group}: {case.name} | {case.known:.1f} | {row.share:.1f} | {row.difference:+.1f} | "
            f"{row.cycles:.0f} | {case.fitted} |"
        )


def notes(target: Target) -> Iterator[str]:
    """What the list needs of the machine, and which of its numbers are assumed."""
    program = Bench(target).program(STEADY)
    sizes = ", ".join(f"{memory} {size}" for memory, size in sorted(program.peaks.items()))
    flags = ", ".join(f"{count} with vector unit {unit}" for unit, count in flag_pairs(program).items())
    yield f"{len(program.tasks)} tasks for {STEADY.queries} queries of {STEADY.topk} keys. Bytes used: {sizes}."
    yield f"Flags of the cube: {flags}, of {target.barriers.per_tile}."
    wide = too_large(replace(STEADY, topk=576, block=96), target)
    yield f"With blocks of 96 keys {'; '.join(wide) if wide else 'all fits'}."
    names = ("engines", "routes", "pools", "sync", "memories.l1", "memories.ub")
    yield f"Assumed numbers: {', '.join(target.assumed(names))}."


if __name__ == "__main__":
    sys.exit(main())
