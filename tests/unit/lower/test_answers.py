"""Answers that are kept between compilations: the same blob with and without them, and never a failure for them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from npuc.answers import AnswerCache
from npuc.driver import CompileOptions, compile_to_blob
from npuc.lower import forms
from tests.support.decoders import decoder

PLAIN = CompileOptions(max_prompt_len=16, min_response_len=8, chunk=8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decoder(tmp_path_factory.mktemp("model") / "model.onnx", "concat")


@pytest.fixture(scope="module")
def blob(model: Path) -> bytes:
    """Of a compilation that keeps nothing."""
    return compiled(model, PLAIN)


def compiled(model: Path, options: CompileOptions) -> bytes:
    path = model.parent / "model.npu"
    compile_to_blob(model, path, options)
    return path.read_bytes()


def with_answers(folder: Path) -> CompileOptions:
    return replace(PLAIN, answers=AnswerCache(folder))


def test_first_and_second_compilation_give_the_blob_of_one_without(
    model: Path, blob: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled(model, with_answers(tmp_path)) == blob
    assert list(tmp_path.glob("*.json"))
    monkeypatch.setattr(forms, "_time", lambda *_: pytest.fail("was timed again"))
    assert compiled(model, with_answers(tmp_path)) == blob


@pytest.mark.parametrize(
    "damage", ["", "{", '{"answer": {}}', '{"answer": {"costs": []}}', '{"answer": {"costs": [{"form": "x"}]}}']
)
def test_damaged_answers_are_found_again(model: Path, blob: bytes, tmp_path: Path, damage: str) -> None:
    compiled(model, with_answers(tmp_path))
    kept = {path: path.read_text() for path in tmp_path.glob("*.json")}
    for path in kept:
        path.write_text(damage)
    assert compiled(model, with_answers(tmp_path)) == blob
    assert {path: path.read_text() for path in tmp_path.glob("*.json")} == kept


def test_a_folder_that_cannot_be_written_is_none(model: Path, blob: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    assert compiled(model, with_answers(tmp_path / "file" / "choices")) == blob


def test_the_question_names_all_that_the_answer_depends_on(model: Path, tmp_path: Path) -> None:
    compiled(model, with_answers(tmp_path))
    for path in tmp_path.glob("*.json"):
        question = json.loads(path.read_text())["question"]
        assert sorted(question) == [
            "first", "forced", "free", "kernel", "params", "sources", "target", "types", "what",
        ]  # fmt: skip


def test_a_forced_form_is_another_question(model: Path, tmp_path: Path) -> None:
    compiled(model, with_answers(tmp_path))
    count = len(list(tmp_path.glob("*.json")))
    compiled(model, replace(with_answers(tmp_path), attention="flash"))
    assert len(list(tmp_path.glob("*.json"))) == 2 * count
