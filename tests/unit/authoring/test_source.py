"""Kernels by the words that people name them with."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from npuc.authoring.errors import KernelSourceError
from npuc.authoring.packages import offers
from npuc.authoring.source import find
from tests.unit.authoring.kernel_files import SOFTMAX, write

PACKAGE = Path(__file__).parents[3] / "examples" / "package"


def refused(words: str) -> str:
    with pytest.raises(KernelSourceError) as caught:
        find(words)
    return str(caught.value)


def test_a_file_with_one_kernel_needs_no_name(tmp_path: Path) -> None:
    path = write(tmp_path)
    for words in (str(path), f"{path}:scaled"):
        found = find(words)
        assert (found.name, found.origin) == ("scaled", "my.py")
        assert found.example().params == {"bm": 8, "scale": 2.0}
        assert found.candidates is not None


def test_examples_of_a_kernel_by_its_own_name_come_first(tmp_path: Path) -> None:
    own = SOFTMAX + "\n\ndef scaled_example():\n    return [example(), example()]\n"
    assert len(list(find(str(write(tmp_path, own))).examples())) == 2


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (SOFTMAX, "my.py:softmax", "my.py: softmax does not exist; the file has the kernels scaled"),
        (SOFTMAX, "my.py:example",
         "my.py: example is no kernel: put @tile.kernel above it; the file has the kernels scaled"),
        ("x = 1\n", "my.py", "my.py has no kernel: say which, my.py:NAME"),
        ("def f(:\n", "my.py", "my.py:1: invalid syntax"),
        ("import nothing_like_this\n", "my.py",
         "my.py fails when it is run: ModuleNotFoundError: No module named 'nothing_like_this' (my.py:1)"),
        (SOFTMAX + SOFTMAX.replace("def scaled", "def other"), "my.py",
         "my.py has the kernels scaled, other: say which, my.py:NAME"),
    ],
)  # fmt: skip
def test_what_a_file_can_lack(tmp_path: Path, text: str, words: str, message: str) -> None:
    write(tmp_path, text)
    assert refused(f"{tmp_path}/{words}") == f"{tmp_path}/{message}"


def test_a_missing_file_and_an_unknown_name(tmp_path: Path) -> None:
    assert refused(f"{tmp_path}/no.py:f") == f"there is no file {tmp_path}/no.py"
    assert refused("softmx") == "no kernel 'softmx': did you mean 'softmax'?; a kernel of a file is FILE.py:NAME"


def test_a_kernel_without_an_example(tmp_path: Path) -> None:
    path = write(tmp_path, SOFTMAX.partition("def reference")[0])
    with pytest.raises(KernelSourceError) as caught:
        find(str(path)).example()
    assert str(caught.value) == (
        "kernel scaled: its file offers no example(); define one that returns a tile.Example "
        "(arrays, params, reference)"
    )


def test_an_example_of_another_type(tmp_path: Path) -> None:
    path = write(tmp_path, SOFTMAX.partition("def reference")[0] + "def example():\n    return [1]\n")
    with pytest.raises(KernelSourceError) as caught:
        find(str(path)).example()
    assert str(caught.value) == "kernel scaled: example() of my.py gives int, not a tile.Example"


def test_every_kernel_of_the_library_has_an_example() -> None:
    from npukernels.registry import KERNELS

    for name in KERNELS:
        assert find(name).origin == "library"
        assert find(name).example().arrays


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example package as an installation of it would lie on the path."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "npuc_example_kernels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["npuc.kernels"].items()]
    (info / "entry_points.txt").write_text("\n".join(["[npuc.kernels]", *lines, "broken = no_such_module:f"]))
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(PACKAGE / "src"), *sys.path])


@pytest.mark.usefixtures("installed")
def test_a_package_offers_kernels() -> None:
    assert list(offers()) == ["broken", "quick_gelu"]
    found = find("quick_gelu")
    assert (found.name, found.origin) == ("quick_gelu", "npuc-example-kernels 1.0")
    assert found.example().params == {}


@pytest.mark.usefixtures("installed")
def test_a_package_that_cannot_be_imported() -> None:
    assert refused("broken") == (
        "kernel broken of npuc-example-kernels 1.0 (no_such_module:f) cannot be imported: ModuleNotFoundError: "
        "No module named 'no_such_module'"
    )
