"""What the shell gets when it asks: a script, and the words that fit."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Runner


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _npuc_completion npuc"),
        ("zsh", "#compdef npuc"),
        ("fish", "complete --no-files --command npuc --arguments \"(_npuc_completion)\";"),
    ],
)  # fmt: skip
def test_each_shell_gets_a_script(npuc: Runner, monkeypatch: pytest.MonkeyPatch, shell: str, line: str) -> None:
    monkeypatch.setenv("_NPUC_COMPLETE", f"{shell}_source")
    result = npuc()
    assert (result.code, result.err) == (0, "")
    assert line in result.out


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("npuc ro", ["plain,roofline"]),
        ("npuc run --mo", ["plain,--mode"]),
        ("npuc run --mode ", ["plain,exact", "plain,fast"]),
        ("npuc models ", ["plain,list", "plain,pull", "plain,shape"]),
        ("npuc compile ", ["file,"]),
    ],
)
def test_words_that_fit(npuc: Runner, monkeypatch: pytest.MonkeyPatch, typed: str, words: list[str]) -> None:
    monkeypatch.setenv("_NPUC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split(" ")) - 1))
    result = npuc()
    assert (result.code, result.out.splitlines()) == (0, words)
