"""The kernel author's guide and the gallery say what is printed and made today."""

from __future__ import annotations

from pathlib import Path

import pytest

from npurt.target import load_target
from tools import gallery, guide


def test_every_snippet_and_command_of_the_guide(tmp_path: Path) -> None:
    page = guide.PAGE.read_text(encoding="utf-8")
    assert guide.executed(page, tmp_path) == page


def test_a_changed_output_is_seen(tmp_path: Path) -> None:
    text = "```python\n# file: a.py\nprint('one')\n```\n\n```console\n$ python a.py\ntwo\n```\n"
    assert guide.executed(text, tmp_path) == text.replace("two", "one")


def test_only_two_programs_may_be_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the page may run npuc and python, not rm"):
        guide.executed("```console\n$ rm -r x\n```\n", tmp_path)


def test_the_gallery_is_todays() -> None:
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page(load_target(gallery.TARGET))
