"""How long the compiler traces kernels and searches for their tile sizes and forms.

    python -m benchmarks.kernel_search FOLDER [--target npu40xx] [--precision f16]

FOLDER is a model as `npuc compile` takes it. Its entries are lowered three times: with nothing known, with the answers
of the first time on disk, and with traces and answers in memory, which leaves what is no search. Seconds are those of
the processor; each search is the difference to the third time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from npuc.answers import AnswerCache
from npuc.authoring.bindings import library_of
from npuc.driver import PRECISIONS
from npuc.graph.entry import ModelGraphs
from npuc.graph.pipeline import build
from npuc.lower.consts import ConstPool
from npuc.lower.entry import Lowered, lower
from npuc.lower.forms import FormChooser
from npuc.lower.storage import Storage
from npuc.lower.walk import state_buffers
from npuc.tile import Trace, TraceCache
from npurt.target import Target, load_target


@dataclass
class TimedTraces(TraceCache):
    """seconds: of the processor, of each trace that was made."""

    seconds: list[float] = field(default_factory=list)

    def get(self, key: tuple[object, ...], make: Callable[[], Trace]) -> Trace:
        def timed() -> Trace:
            clock = time.process_time()
            trace = make()
            self.seconds.append(time.process_time() - clock)
            return trace

        return super().get(key, timed)


@dataclass(frozen=True)
class Search:
    """kernels: distinct ones by name, types and parameters that the programs have. traces: seconds of each that was
    made while searching. cold, cached: seconds of a search with nothing known, and with answers on disk."""

    kernels: int
    traces: Sequence[float]
    cold: float
    cached: float

    def lines(self) -> list[str]:
        each = [1e3 * seconds for seconds in self.traces]
        return [
            f"distinct kernels   {self.kernels}",
            f"traces             {len(each)}",
            f"ms per trace       {sum(each) / max(len(each), 1):.1f}, the slowest {max(each, default=0.0):.1f}",
            f"search, s          {self.cold:.2f} cold, {self.cached:.2f} with answers on disk",
        ]


def measure(graphs: ModelGraphs, target: Target, precision: str) -> Search:
    """The searches of a model's entries."""
    with tempfile.TemporaryDirectory(prefix="npuc-search-") as folder:
        answers = AnswerCache(Path(folder))

        def timed(traces: TraceCache, forms: FormChooser) -> tuple[float, list[Lowered]]:
            storage = Storage(PRECISIONS[precision])
            consts, buffers = ConstPool(storage), state_buffers(graphs.states, storage)
            room = target.memories["cmx"].bytes
            clock = time.process_time()
            made = [lower(entry, graphs.states, buffers, storage, consts, traces, "cmx", room, forms)
                    for entry in graphs.entries]  # fmt: skip
            return time.process_time() - clock, made

        def chooser() -> FormChooser:
            return FormChooser(library_of({}, {}, None, target), target, answers=answers)

        traces = TimedTraces()
        cold, _ = timed(traces, chooser())
        known, forms = TraceCache(), chooser()
        cached, lowered = timed(known, forms)
        rest, _ = timed(known, forms)
    chosen = {id(choice.trace) for each in lowered for _, choice in each.choices}
    return Search(len(chosen), traces.seconds, max(cold - rest, 0.0), max(cached - rest, 0.0))


def main(words: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernel_search", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--target", default="npu40xx")
    parser.add_argument("--precision", choices=tuple(PRECISIONS), default="f16")
    options = parser.parse_args(words)
    for line in measure(build(options.folder), load_target(options.target), options.precision).lines():
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
