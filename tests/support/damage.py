"""Random damage to a blob, and a process that loads and runs damaged blobs under limits of memory and time.

``python -m tests.support.damage BLOB MODE FIRST COUNT`` prints one line for each damage: its number and its
outcome. A damage is a function of the blob and its number, so that a line is enough to see it again.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from npurt.abi import blob
from tests.support.blobs import Bytes, sections, with_digests

MEMORY = 2 << 30  # bytes of address space of the process, Python and NumPy included
SECONDS = 20  # for one damaged blob: load, every entry once, a short answer
GROUPS = {
    "tables": (
        blob.NAME_BASES, blob.NAME_ENTRIES, blob.NAME_BARRIERS, blob.NAME_DMA, blob.NAME_DPU, blob.NAME_SHAVE,
        blob.NAME_SHAVE_ARGS, blob.NAME_SHAVE_KERNELS, blob.NAME_ORIGINS,
    ),
    "relocations": (blob.NAME_RELA_STATIC, blob.NAME_RELA_BIND, blob.NAME_RELA_STEP),
    "bytecode": (blob.NAME_SHAVE_TEXT,),
    "metadata": (blob.NAME_META,),
    "names": (
        blob.NAME_SYMTAB, blob.NAME_STRTAB, blob.NAME_SHSTRTAB, blob.NAME_NAMES, blob.NAME_NOTE, blob.NAME_DIGEST,
    ),
    "weights": (blob.NAME_WEIGHTS,),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of one damage. text: the message.

    kind: "refused" or "ran"; a fault is "accepted" (loaded, and then not to be run) or "crashed".
    """

    number: int
    kind: str
    text: str


def regions(data: bytes, found: dict[str, Bytes]) -> list[list[tuple[int, int]]]:
    """(offset, size) in the file of what each group damages: headers, then `GROUPS`, then the assets."""
    table = int.from_bytes(data[0x28:0x30], "little")
    groups = [[(0, 64), (table, len(data) - table if table > len(data) // 2 else 64 * (len(found) + 2))]]
    for names in GROUPS.values():
        groups.append([(found[name].offset, found[name].size) for name in names if found[name].size])
    assets = [s for s in found.values() if s.name.startswith(blob.NAME_ASSET_PREFIX) and s.size]
    groups.append([(s.offset, s.size) for s in assets])
    return [group for group in groups if group]


def damaged(data: bytes, found: dict[str, Bytes], number: int) -> bytes:
    """`data` with one to three bytes changed; every second number with all digests recomputed."""
    rng = np.random.default_rng(number)
    groups = regions(data, found)
    group = groups[int(rng.integers(len(groups)))]
    start, size = group[int(rng.integers(len(group)))]
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = min(start + int(rng.integers(size)), len(data) - 1)
        kind = rng.random()
        if kind < 0.4:
            changed[at] ^= 1 << int(rng.integers(8))
        else:
            changed[at] = int(rng.choice([0, 1, 0x7F, 0x80, 0xFF])) if kind < 0.6 else int(rng.integers(256))
    return with_digests(changed, found) if number % 2 else bytes(changed)


def run_damaged(path: Path, mode: str, first: int, count: int) -> list[Outcome]:
    """The outcomes of the damages `first` to `first` + `count`, from processes of their own.

    A process that ends by a signal or a traceback is the outcome "crashed" of the damage that it had in hand; the next
    process goes on behind it.
    """
    outcomes: list[Outcome] = []
    at = first
    while at < first + count:
        words = [
            sys.executable,
            "-m",
            "tests.support.damage",
            str(path.resolve()),
            mode,
            str(at),
            str(first + count - at),
        ]
        done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parents[2])
        for line in done.stdout.splitlines():
            number, kind, text = line.split(" ", 2)
            outcomes.append(Outcome(int(number), kind, text))
        at = outcomes[-1].number + 1 if outcomes else first
        if at < first + count:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            outcomes.append(Outcome(at, "crashed", f"exit code {done.returncode}: {last}"))
            at += 1
    return outcomes


def _outcome(path: Path, mode: str) -> tuple[str, str]:
    """Loads a blob and runs all that it can: each entry on zeros, then an answer of a session."""
    import npurt
    from npurt.errors import BlobError, NpurtError
    from npurt.fast import open_device
    from npurt.llm import NoLanguageModelError, PromptError, Request, Session, TokenizerError

    try:
        image = npurt.load(path)
        device = open_device(image, mode)
        for entry in image.entries.values():
            ports = entry.ports.inputs
            for past in {0, entry.max_past}:
                zeros = {port.name: np.zeros(port.shape) for port in ports}
                device.run(entry.name, zeros, n_past=past, n_new=min(entry.rows, 1) if past else None)
        if image.host is not None:
            device.run(image.host.name, {name: np.zeros(value.shape) for name, value in image.host.inputs.items()})
        Session(image, device).generate([1], Request(max_new_tokens=2)).finish()
    except BlobError as error:
        return "refused", str(error)
    except NoLanguageModelError:
        return "ran", "a plain graph"
    except (TokenizerError, PromptError) as error:
        return "ran", str(error)
    except NpurtError as error:
        return "accepted", f"{type(error).__name__}: {error}"
    return "ran", "an answer"


def main(arguments: list[str]) -> None:
    path, mode, first, count = Path(arguments[0]), arguments[1], int(arguments[2]), int(arguments[3])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    data, found = path.read_bytes(), sections(path)
    with TemporaryDirectory() as folder:
        for number in range(first, first + count):
            target = Path(folder) / f"{number}.npu"
            target.write_bytes(damaged(data, found, number))
            signal.alarm(SECONDS)  # no handler: the process ends, wherever it is
            kind, text = _outcome(target, mode)
            signal.alarm(0)
            target.unlink()
            print(number, kind, repr(text), flush=True)  # repr: one line, whatever the message holds


if __name__ == "__main__":
    main(sys.argv[1:])
