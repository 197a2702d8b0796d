"""The runner of the golden programs, with a compiler that a test provides."""

from pathlib import Path

import pytest

from tools import golden

ROWS = '[[program]]\nname = "one"\nmodel = "a"\n\n[[program]]\nname = "two"\nmodel = "b"\noptions = ["--chunk", "4"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A golden folder whose "compiler" writes the model's name, which "disasm" copies and "diff" compares."""
    (tmp_path / "programs.toml").write_text(ROWS)

    def npuc(words: list[str]) -> int:
        if words[0] == "compile":
            Path(words[3]).write_text(Path(words[1]).name)
        elif words[0] == "disasm":
            Path(words[3]).write_text(Path(words[1]).read_text())
        elif not Path(words[1]).exists():
            return 2
        else:
            return int(Path(words[1]).read_text() != Path(words[2]).read_text())
        return 0

    monkeypatch.setattr(golden, "npuc", npuc)
    monkeypatch.setattr(golden, "FOLDER", tmp_path)
    return tmp_path


def test_update_then_compare(folder: Path) -> None:
    assert golden.main([]) == 1, "texts that are not there"
    assert golden.main(["--update"]) == 0
    assert golden.main([]) == 0


def test_a_difference_names_the_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden.main(["--update"])
    (folder / "two.txt").write_text("something else")
    assert golden.main([]) == 1
    out = capsys.readouterr().out
    assert "not equal: two; if the change is meant, `make golden-update` writes the new texts" in out
    assert golden.main(["one"]) == 0


def test_a_text_without_a_program_is_a_fault(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden.main(["--update"])
    (folder / "three.txt").write_text("")
    assert golden.main([]) == 1
    assert "tests/golden/three.txt has no row in programs.toml" in capsys.readouterr().out


def test_an_unknown_program_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        golden.main(["four"])
    assert stop.value.code == 2
    assert "no such program: four (known: one, two)" in capsys.readouterr().err


def test_the_rows_of_the_project_can_be_read() -> None:
    for program in golden.programs(golden.ROOT / "tests" / "golden"):
        assert (golden.ROOT / program.model).exists()
