"""The result as a table in Markdown, with the host that it was measured on."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.rounds import Rounds
from benchmarks.runners import OWN
from benchmarks.stages import Stage


@dataclass(frozen=True)
class Report:
    """compiled: the blob's making. loads: by runner. differences: of last logits to npuc's. threads: of BLAS and
    onnxruntime."""

    compiled: Stage
    loads: Mapping[str, Stage]
    rounds: Sequence[Rounds]
    differences: Mapping[str, float]
    threads: int

    def lines(self) -> Iterator[str]:
        """The table. A ratio is npuc's number by the other's: less is better for seconds and MB, more for tokens/s."""
        names = list(self.loads)
        others = [name for name in names if name != OWN]
        yield f"{_host()}; {self.threads} threads. Speed of the simulator on this host, not of the NPU."
        yield ""
        yield _row("", *names, *(f"npuc / {name}" for name in others))
        yield _row("---", *("---:" for _ in (*names, *others)))
        yield _stage_row("compile, s", {OWN: self.compiled.seconds}, names, others)
        yield _stage_row("compile, peak MB", {OWN: self.compiled.peak_mb}, names, others)
        yield _stage_row("load and first token, s", {name: s.seconds for name, s in self.loads.items()}, names, others)
        yield _stage_row("load, peak MB", {name: s.peak_mb for name, s in self.loads.items()}, names, others)
        for rounds in self.rounds:
            speeds = (f"{rounds.rate(name):.1f}" for name in names)
            yield _row(f"{rounds.what}, tokens/s", *speeds, *(f"{rounds.ratio(OWN, name):.2f}" for name in others))
        yield ""
        found = ", ".join(f"{name} {self.differences[name]:.1e}" for name in others)
        yield f"Largest difference of a prompt's last logits to npuc's, relative: {found}."


def _host() -> str:
    import numpy as np

    from npuc.host import cores
    from npurt import blas

    known = blas.loaded()
    kernel = "unknown" if known is None else f"OpenBLAS {known.kernel}"
    return f"BLAS kernel: {kernel}; NumPy {np.__version__}, {platform.machine()}, {cores()} cores"


def _stage_row(what: str, values: Mapping[str, float | None], names: Sequence[str], others: Sequence[str]) -> str:
    """Seconds or megabytes; the ratio is npuc's share of the other's."""
    shown = [_number(values.get(name)) for name in names]
    own = values.get(OWN)
    ratios = []
    for name in others:
        other = values.get(name)
        ratios.append("" if own is None or not other else f"{own / other:.2f}")
    return _row(what, *shown, *ratios)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.2f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
