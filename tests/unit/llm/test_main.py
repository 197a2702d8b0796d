"""`python -m npurt run`: the same JSON as `npuc run`, and no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npurt import __main__ as program
from npurt.errors import BlobError
from tests.unit.llm.fake import FakeDevice, FakeImage, greedy


@pytest.fixture
def image(monkeypatch: pytest.MonkeyPatch) -> FakeImage:
    fake = FakeImage()
    monkeypatch.setattr(program, "load", lambda path: fake)
    monkeypatch.setattr(program, "open_device", lambda image, mode, warn: FakeDevice(image))
    return fake


def test_json_is_one_object(image: FakeImage, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["run", "m.npu", "--prompt-ids", "1 2", "--max-new-tokens", "3", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert set(found) == {"tokens", "text", "stop_reason", "stats"}
    assert (found["tokens"], found["stop_reason"], captured.err) == (greedy([1, 2], 3), "max_tokens", "")


def test_people_get_ids_and_a_summary(image: FakeImage, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["run", "m.npu", "--prompt-ids", "1 2", "--max-new-tokens", "2"]) == 0
    captured = capsys.readouterr()
    assert captured.out == " ".join(map(str, greedy([1, 2], 2))) + " \n"
    assert captured.err.startswith("2 tokens (max_tokens) after 2 of prompt; prompt ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--prompt-ids", ""],
            "error: the prompt has 0 tokens: it needs at least 1 and at most 8 (--max-prompt-len)\n",
        ),
        (["--prompt-ids", "1", "--top-k", "-1"], "error: --top-k is -1: it must be 0 (keep all) or more\n"),
    ],
)
def test_wrong_use(image: FakeImage, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert program.main(["run", "m.npu", *words]) == 2
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BlobError("m.npu: cut short"), 4, "error: m.npu: cut short\n"),
        (FileNotFoundError(2, "No such file or directory", "m.npu"), 2, "error: m.npu: No such file or directory\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_have_exit_codes_and_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    message: str,
) -> None:
    def load(path: Path) -> None:
        raise error

    monkeypatch.setattr(program, "load", load)
    assert program.main(["run", "m.npu", "--prompt-ids", "1"]) == code
    assert capsys.readouterr().err == message
