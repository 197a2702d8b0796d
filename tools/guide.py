"""Runs docs/kernel-guide.md: writes its files into a folder, runs its commands there, compares what they print.

`python -m tools.guide` prints what differs and exits with 1; `--update` writes today's output into the page.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from npuc.cli import main as npuc

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "kernel-guide.md"
MODEL = ROOT / "npuc" / "data" / "default_model"
_FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# file: (\S+)\n")
_OF_THIS_HOST = re.compile(r"(max error) .*")  # onnxruntime's numbers differ from host to host
_SECONDS = re.compile(r"^time +[\d.]+ s$")  # of a compilation: the one line that no two runs share


def executed(page: str, folder: Path) -> str:
    """The page with the output of its commands as it is today. folder: where they run."""
    shutil.copytree(MODEL, folder / "default_model")
    with _inside(folder):
        return _FENCE.sub(_block, page)


def _block(match: re.Match[str]) -> str:
    kind, text = match.groups()
    if kind == "python":
        named = _FILE.match(text)
        if named is not None:
            Path(named[1]).write_text(text[named.end() :], encoding="utf-8")
        return match.group()
    commands = [line for line in text.splitlines() if line.startswith("$ ")]
    return "```console\n" + "".join(f"{line}\n{_output(line[2:])}" for line in commands) + "```"


def _output(command: str) -> str:
    """What a command prints, without its progress and the lines that time it."""
    words = shlex.split(command)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if words[0] == "npuc":
            code = npuc(words[1:])
        elif words[0] == "python":
            code = 0
            runpy.run_path(words[1], run_name="__main__")
        else:
            raise ValueError(f"the page may run npuc and python, not {words[0]}")
    errors = [line for line in err.getvalue().splitlines() if code != 0 and not line.startswith("help:")]
    lines = [line for line in out.getvalue().splitlines() if not _SECONDS.match(line)]
    lines = [_OF_THIS_HOST.sub(r"\1 ...", line) for line in lines]
    here = f"{Path.cwd()}{os.sep}"
    return "".join(f"{line.replace(here, '')}\n" for line in [*lines, *errors])


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Runs in a folder, from which Python imports, too; modules that came from there are forgotten."""
    before, known = Path.cwd(), set(sys.modules)
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        for name in set(sys.modules) - known:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit code 1 where the page does not say what is printed today."""
    parser = argparse.ArgumentParser(prog="python -m tools.guide", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the output instead of comparing it")
    options = parser.parse_args(arguments)
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        today = executed(page, Path(folder).resolve())
    if options.update:
        PAGE.write_text(today, encoding="utf-8", newline="\n")
        return 0
    for line in difflib.unified_diff(page.splitlines(), today.splitlines(), "the page", "today", lineterm="", n=1):
        print(line)
    return int(page != today)


if __name__ == "__main__":
    sys.exit(main())
