"""The cases with the share of the cube's peak that is known for each.

Measured on hardware and published are two: 410 TFLOPS of 432.5 for prefill, 360 for decode. The others are those of
another event model of the released kernel, made from its source and the analysis beside it. What it assumes is what
ascend950.toml assumes, where both have it: the start-up of a product, 600 cycles of latency, 20 for a flag, 6 for an
issue. It prices the vector stages as a whole and has no banks; here instructions are priced, and banks of L1 shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.sparse_attention.measure import QUERIES, Bench, priced
from benchmarks.sparse_attention.problem import Problem
from npurt.target import Target, scaled

STEADY = Problem(queries=5)
"""Enough for a steady state; longer runs are extended from it."""
RANDOM = Problem(queries=24)
"""Enough blocks for shares of them."""
LATENCY = ("routes.ddr->ub.latency", "routes.ddr->l1.latency")
FP8_ROW = 528
"""Bytes of a cached row of e4m3 codes with its scales."""


@dataclass(frozen=True)
class Case:
    """known: per cent of the cube's peak. fitted: what was chosen so that this comes out, "" for a prediction."""

    group: str
    name: str
    known: float
    problem: Problem
    machine: Callable[[Target], Target] = lambda target: target
    queries: int = QUERIES
    rescale: float = 0.0
    vector: tuple[tuple[str, float], ...] = ()
    row_bytes: int | None = None
    fitted: str = ""


@dataclass(frozen=True)
class Row:
    """One line of the table: per cent of the cube's peak, and cycles of a block of keys."""

    case: Case
    share: float
    cycles: float

    @property
    def difference(self) -> float:
        return self.share - self.case.known


def launch(cycles: float) -> Callable[[Target], Target]:
    """The start-up of a product."""
    return lambda target: scaled(target, "engines.cube.launch", cycles / _cycles(target, "engines.cube.launch"))


def latency(cycles: float) -> Callable[[Target], Target]:
    """Of memory."""

    def machine(target: Target) -> Target:
        for key in LATENCY:
            target = scaled(target, key, cycles / _cycles(target, key))
        return target

    return machine


def half_rate(target: Target) -> Target:
    """Of L1 to the cube's operands."""
    return scaled(scaled(target, "routes.l1->l0a.rate", 0.5), "routes.l1->l0b.rate", 0.5)


def cases() -> Iterator[Case]:
    yield Case("measured", "prefill, 640 keys", 94.8, STEADY, fitted="start-up of a product, 6 cycles")
    yield _decode("measured", "decode, 640 keys in e4m3", 83.2, 590, "dequantisation, 590 cycles")
    for cycles, share in ((0, 99.7), (4, 96.7), (6, 95.3), (7, 94.6), (8, 93.9)):
        name = f"start-up of a product {cycles} cycles"
        yield Case(f"prefill of {QUERIES} queries, 640 keys", name, share, STEADY, launch(cycles))
    for keys, share in ((512, 95.2), (1024, 95.4), (2048, 95.4)):
        yield Case("keys of a query", f"{keys}", share, replace(STEADY, topk=keys))
    for cycles, share in ((600, 95.3), (900, 95.2), (1000, 94.2), (1100, 88.6), (1300, 76.6)):
        yield Case("latency, 2 rows in a request", f"{cycles} cycles", share, STEADY, latency(cycles))
    plain = replace(STEADY, rows_per_request=1)
    for cycles, share in ((600, 84.1), (900, 56.8), (1000, 51.1), (1100, 46.5), (1300, 39.3)):
        yield Case("latency, 1 row in a request", f"{cycles} cycles", share, plain, latency(cycles))
    for rate, share in ((0.0, 95.3), (0.05, 90.8), (0.1, 87.6), (0.3, 74.2), (1.0, 53.3)):
        yield Case("blocks that rescale (drawn at random)", f"{rate:.0%}", share, RANDOM, rescale=rate)
    yield Case("order and ways", "skip flag before each gather", 91.6, replace(STEADY, flag_first=True))
    yield Case("order and ways", "L1 to the cube at 128 B/cycle", 63.9, STEADY, half_rate)
    for keys, share in ((512, 66.6), (640, 71.4), (1024, 79.5), (2048, 87.0)):
        yield Case("one query a core", f"{keys} keys", share, Problem(topk=keys), queries=1)
    for cycles, share in ((600, 86.4), (650, 82.9), (700, 79.6)):
        yield _decode("decode of 16 queries, e4m3", f"dequantisation {cycles} cycles", share, cycles)


def _decode(group: str, name: str, share: float, dequantisation: int, fitted: str = "") -> Case:
    """A cache of codes: dequantisation takes the place of the reordering, at a cost that is given."""
    stages = (("nd2nz", float(dequantisation)), ("softmax", 420.0))
    return Case(group, name, share, STEADY, launch(4), 16, vector=stages, row_bytes=FP8_ROW, fitted=fitted)


def measure(target: Target, chosen: Sequence[Case]) -> Iterator[Row]:
    """The rows of these cases on this machine."""
    bench = Bench(target)
    for case in chosen:
        machine = case.machine(target)
        change = priced(dict(case.vector), machine, row_bytes=case.row_bytes) if case.vector else None
        run = bench.run(case.problem, machine, rescale=case.rescale, change=change)
        share = run.use(machine, case.queries)
        full = 2 * case.problem.block * case.problem.heads * case.problem.dim
        yield Row(case, 100 * share, full / machine.engine_of("matrix").macs_per_cycle["bf16"] / share)


def _cycles(target: Target, key: str) -> float:
    return float(target.figures[key].text.strip('"').split()[0])
