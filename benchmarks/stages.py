"""Compiling and loading, each in a process of its own, so that its peak of memory is its own.

    python -m benchmarks.stages load NAME FOLDER BLOB CAPACITY THREADS
    python -m benchmarks.stages compile FOLDER BLOB WORDS...

Prints one JSON object on its last line. `load` takes the time until a runner has answered one token of prompt, the
import of its packages included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


class StageFailed(Exception):
    """A child process ended badly; the message is what it said."""


@dataclass(frozen=True)
class Stage:
    """seconds, and the most memory the process has held (10^6 bytes; None where the system does not say)."""

    seconds: float
    peak_mb: float | None


def run_stage(*words: str | Path) -> Stage:
    """One stage in a child. Errors: StageFailed."""
    command = [sys.executable, "-m", "benchmarks.stages", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    if done.returncode != 0:
        raise StageFailed(f"{' '.join(map(str, words))}\n{done.stderr.strip()}")
    return Stage(**json.loads(done.stdout.splitlines()[-1]))


def main(words: list[str]) -> int:
    clock = time.perf_counter()
    if words[0] == "compile":
        from npuc.cli import main as npuc

        code = npuc(["compile", words[1], "-o", *words[2:]])
        if code != 0:
            return code
    else:
        _load(*words[1:])
    seconds = time.perf_counter() - clock
    from npuc.host import peak_rss_bytes

    peak = peak_rss_bytes()
    print(json.dumps({"seconds": seconds, "peak_mb": None if peak is None else peak / 1e6}))
    return 0


def _load(name: str, folder: str, blob: str, capacity: str, threads: str) -> None:
    import numpy as np

    from benchmarks.runners import open_runner

    open_runner(name, Path(folder), Path(blob), int(capacity), int(threads)).prompt(np.zeros(1, np.int64))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
