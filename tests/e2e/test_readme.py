"""README's transcript is what the tool prints: commands are run, `...` stands for any lines, times are left out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from npuc.cli import main

ROOT = Path(__file__).resolve().parents[2]
TIME = re.compile(r"^time +[\d.]+ s$", re.MULTILINE)


def transcript() -> list[tuple[str, list[str]]]:
    """Each command of the block and the lines shown under it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.split("<!-- transcript -->\n```console\n")[1].split("\n```")[0]
    steps = []
    for part in block.split("$ ")[1:]:
        command, *lines = part.rstrip("\n").split("\n")
        steps.append((command, lines))
    return steps


def shown(output: list[str], lines: list[str]) -> bool:
    """Whether the segments between `...` lines stand in the output, in order; without `...` all of it is shown."""
    if "..." not in lines:
        return output == lines
    at = 0
    for segment in "\n".join(lines).split("..."):
        wanted = segment.strip("\n").split("\n")
        if wanted == [""]:
            continue
        places = [i for i in range(at, len(output)) if output[i : i + len(wanted)] == wanted]
        if not places:
            return False
        at = places[0] + len(wanted)
    return True


def test_the_transcript_is_real(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "npuc").symlink_to(ROOT / "npuc")
    monkeypatch.chdir(tmp_path)
    steps = transcript()
    assert len(steps) == 4
    for command, lines in steps:
        program, *arguments = shlex.split(command)
        assert program == "npuc"
        assert main(arguments) == 0, command
        output = TIME.sub("time", capsys.readouterr().out).rstrip("\n").split("\n")
        wanted = TIME.sub("time", "\n".join(lines)).rstrip("\n").split("\n")
        assert shown(output, wanted), f"{command}\n" + "\n".join(output)
