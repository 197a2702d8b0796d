"""Compiles the models of tests/golden/programs.toml and compares each program with its text in tests/golden.

`python -m tools.golden` prints what differs, by `npuc diff`, and exits with 1; `--update` writes the texts anew.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from npuc.cli import main as npuc

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "golden"


@dataclass(frozen=True)
class Program:
    """One golden program: its text is NAME.txt. model: a path below the project; options: of `npuc compile`."""

    name: str
    model: str
    options: tuple[str, ...] = ()


def programs(folder: Path) -> list[Program]:
    """The rows of programs.toml, in the order of the file."""
    rows = tomllib.loads((folder / "programs.toml").read_text(encoding="utf-8"))["program"]
    return [Program(row["name"], row["model"], tuple(row.get("options", ()))) for row in rows]


def orphans(folder: Path, wanted: Sequence[Program]) -> list[str]:
    """Texts that no row of programs.toml makes: nothing would ever compare them."""
    return sorted({path.stem for path in folder.glob("*.txt")} - {program.name for program in wanted})


def check(program: Program, folder: Path, *, update: bool) -> bool:
    """Compiles one program and compares it with its text, or writes the text. True where both are equal."""
    text = folder / f"{program.name}.txt"
    with tempfile.TemporaryDirectory() as scratch:
        blob = str(Path(scratch) / f"{program.name}.npu")
        print(f"{program.name}: npuc compile {' '.join([program.model, *program.options])}", flush=True)
        if npuc(["compile", str(ROOT / program.model), "-o", blob, *program.options]) != 0:
            return False
        if update:
            return npuc(["disasm", blob, "-o", str(text)]) == 0
        return npuc(["diff", str(text), blob]) == 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit code 1 where a program differs from its text, or a text has no program."""
    parser = argparse.ArgumentParser(prog="python -m tools.golden", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the texts instead of comparing them")
    parser.add_argument("name", nargs="*", help="only these programs")
    options = parser.parse_args(arguments)
    known = programs(FOLDER)
    unknown = sorted(set(options.name) - {program.name for program in known})
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)} (known: {', '.join(p.name for p in known)})")
    chosen = [program for program in known if not options.name or program.name in options.name]
    wrong = [program.name for program in chosen if not check(program, FOLDER, update=options.update)]
    lost = orphans(FOLDER, known)
    for name in lost:
        print(f"tests/golden/{name}.txt has no row in programs.toml")
    if wrong:
        print(f"not equal: {', '.join(wrong)}; if the change is meant, `make golden-update` writes the new texts")
    verb = "written" if options.update else "equal"
    print(f"golden: {len(chosen) - len(wrong)} of {len(chosen)} programs {verb}")
    return 1 if wrong or lost else 0


if __name__ == "__main__":
    sys.exit(main())
