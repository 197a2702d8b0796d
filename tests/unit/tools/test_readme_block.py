"""README's named code blocks, which continuous integration runs."""

import pytest

from tools import readme_block


def test_blocks_are_found_by_name() -> None:
    text = "intro\n<!-- block: one -->\n```bash\nmake a\nmake b\n```\n```\nnot named\n```\n"
    text += "<!-- block: two -->\n\n```\nx\n```\n"
    assert readme_block.blocks(text) == {"one": "make a\nmake b\n", "two": "x\n"}


def test_two_blocks_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^two blocks are named 'a'$"):
        readme_block.blocks("<!-- block: a -->\n```\n1\n```\n<!-- block: a -->\n```\n2\n```\n")


def test_readme_has_the_blocks_that_ci_runs(capsys: pytest.CaptureFixture[str]) -> None:
    script = (readme_block.README.parent / ".ci" / "run").read_text(encoding="utf-8")
    wanted = [line.split()[1] for line in script.splitlines() if line.startswith("readme ")]
    assert wanted
    for name in wanted:
        assert readme_block.main([name]) == 0
        assert capsys.readouterr().out.strip()


def test_an_unknown_name_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert readme_block.main(["nothing"]) == 2
    assert "one of: demo, test, install" in capsys.readouterr().err
