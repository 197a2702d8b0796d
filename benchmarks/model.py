"""A model's compile, load, memory and speed beside onnxruntime and plain NumPy.

    python -m benchmarks.model FOLDER [--prompts 128,512] [--rounds 24] [--threads 2] [--precision f32]

FOLDER is an exported folder, as `npuc models pull` writes it. Prints a table in Markdown; docs/benchmarks.md says how
each number is taken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.environment import as_found
from npuc.cli.progress import progress
from npuc.progress import Report as Progress
from npuc.progress import silent

if TYPE_CHECKING:
    from benchmarks.stages import Stage
    from benchmarks.table import Report

RIGHT = 0.05
"""Most that last logits may differ between runners, as a share of the largest one, for speeds to be comparable."""


def main(words: Sequence[str] | None = None) -> int:
    """The command line. Exit code 1 where a runner fails, or computes something else than the others."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.model", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--prompts", default="128,512", metavar="A,B", help="lengths of the prompts (128,512)")
    parser.add_argument("--rounds", type=int, default=24, metavar="R", help="tokens of decode; a quarter: prompts (24)")
    parser.add_argument("--threads", type=int, default=2, metavar="T", help="of BLAS and of onnxruntime (2)")
    parser.add_argument("--precision", choices=("f32", "f16"), default="f32", help="of the blob (f32)")
    options = parser.parse_args(words)
    as_found(options.threads)
    prompts = [int(length) for length in options.prompts.split(",")]
    from benchmarks.stages import StageFailed

    try:
        with progress() as told:
            report = measure(options.folder, prompts, options.rounds, options.threads, options.precision, told)
    except StageFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for line in report.lines():
        print(line)
    return 1 if any(value > RIGHT for value in report.differences.values()) else 0


def measure(
    folder: Path, prompts: Sequence[int], rounds: int, threads: int, precision: str, told: Progress = silent
) -> Report:
    """All measurements; a runner that cannot load the model is left out. told: each step.

    Errors: StageFailed where npuc's own compiling or loading fails.
    """
    from benchmarks.runners import NAMES, OWN
    from benchmarks.stages import StageFailed, run_stage

    folder = folder.absolute()
    with tempfile.TemporaryDirectory(prefix="npuc-bench-") as scratch:
        blob = Path(scratch) / "model.npu"
        limits = ("--max-prompt-len", str(max(prompts)), "--min-response-len", str(rounds + 1))
        told("compile", None)
        compiled = run_stage("compile", folder, blob, "--precision", precision, *limits)
        capacity = max(prompts) + rounds + 1
        loads = {}
        for name in NAMES:
            told(f"load with {name}", None)
            try:
                loads[name] = run_stage("load", name, folder, blob, str(capacity), str(threads))
            except StageFailed as error:
                if name == OWN:
                    raise
                print(f"note: without {name}: {str(error).splitlines()[-1]}", file=sys.stderr)
        return _speeds(folder, blob, prompts, rounds, threads, compiled, loads, told)


def _speeds(
    folder: Path,
    blob: Path,
    prompts: Sequence[int],
    rounds: int,
    threads: int,
    compiled: Stage,
    loads: dict[str, Stage],
    told: Progress,
) -> Report:
    """Prefill and decode of all runners that load, in this process."""
    from benchmarks.rounds import decode_rounds, differences, prefill_rounds
    from benchmarks.runners import OWN, Npuc, open_runner
    from benchmarks.table import Report

    capacity = max(prompts) + rounds + 1
    told("load all", None)
    runners = {name: open_runner(name, folder, blob, capacity, threads) for name in loads}
    npuc = runners[OWN]
    assert isinstance(npuc, Npuc)
    vocab = npuc.info.vocab
    differ = differences(runners, min(prompts), vocab)
    found = []
    for length in prompts:
        told(f"prompts of {length}", None)
        found.append(prefill_rounds(runners, length, max(rounds // 4, 3), vocab))
    told("single tokens", None)
    found.append(decode_rounds(runners, min(prompts), rounds, vocab))
    return Report(compiled, loads, found, differ, threads)


if __name__ == "__main__":
    sys.exit(main())
