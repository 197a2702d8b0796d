"""`npuc run`: the contract of its options and of its JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.cli.conftest import Compiler, Runner
from tests.unit.llm.fake import FakeImage, expected_logits, greedy


def test_json_is_one_object_with_the_documented_fields(
    npuc: Runner, compiler: Compiler, image: FakeImage, blob: Path
) -> None:
    result = npuc("run", blob, "--prompt-ids", "1 2 3", "--max-new-tokens", "4", "--json")
    assert result.code == 0 and result.err == ""
    found = json.loads(result.out)
    assert set(found) == {"tokens", "text", "stop_reason", "stats"}
    assert (found["tokens"], found["text"], found["stop_reason"]) == (greedy([1, 2, 3], 4), None, "max_tokens")
    assert found["stats"]["prompt_tokens"] == 3 and found["stats"]["fed_tokens"] == 3


def test_a_finished_blob_needs_no_compiler(
    npuc: Runner, image: FakeImage, blob: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "npuc.driver", None)  # the import of it, and so of onnx, would fail
    assert npuc("run", blob, "--prompt-ids", "1 2", "--max-new-tokens", "2").code == 0


def test_without_a_tokenizer_people_get_the_ids(npuc: Runner, compiler: Compiler, image: FakeImage, blob: Path) -> None:
    result = npuc("run", blob, "--prompt-ids", "1,2,3", "--max-new-tokens", "2")
    assert result.out == " ".join(map(str, greedy([1, 2, 3], 2))) + " \n"
    assert result.err.startswith("2 tokens (max_tokens) after 3 of prompt; prompt ")


def test_with_a_tokenizer_people_get_text(npuc: Runner, compiler: Compiler, image: FakeImage, blob: Path) -> None:
    letters = {chr(ord("a") + token): token for token in range(23)}
    image.assets["tokenizer.json"] = json.dumps(
        {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
         "pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": False},
         "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
         "use_regex": True}, "model": {"type": "WordLevel", "vocab": letters, "unk_token": "a"}}
    ).encode()  # fmt: skip
    result = npuc("run", blob, "--prompt", "bcd", "--max-new-tokens", "3")
    assert result.out == "".join(chr(ord("a") + token) for token in greedy([1, 2, 3], 3)) + "\n"
    assert json.loads(npuc("run", blob, "--prompt", "bcd", "--max-new-tokens", "3", "--json").out)["text"] == (
        result.out.removesuffix("\n")
    )


def test_logits_are_a_file_of_this_name_with_prompt_and_step(
    npuc: Runner, compiler: Compiler, image: FakeImage, blob: Path, tmp_path: Path
) -> None:
    target = tmp_path / "logits.bin"
    words = ("--prompt-ids", "1 2 3", "--force-ids", "4 5 6", "--logits", target, "--json")
    tokens = json.loads(npuc("run", blob, *words).out)["tokens"]
    with np.load(target) as found:
        assert sorted(found.files) == ["prompt", "step"]
        prompt, step = found["prompt"], found["step"]
    assert prompt.dtype == step.dtype == np.float32
    np.testing.assert_array_equal(prompt, [expected_logits([1, 2, 3][: n + 1]) for n in range(3)])
    np.testing.assert_array_equal(step, [expected_logits([1, 2, 3, 4, 5, 6][: n + 4]) for n in range(3)])
    assert tokens == [int(np.argmax(row)) for row in (prompt[-1], *step[:-1])]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "error: give the prompt either as --prompt TEXT or as --prompt-ids '1 2 3'\nhelp: npuc run --help\n"),
        (
            ("--prompt", "a", "--prompt-ids", "1"),
            "error: give the prompt either as --prompt TEXT or as --prompt-ids '1 2 3'\nhelp: npuc run --help\n",
        ),
        (
            ("--prompt-ids", ""),
            "error: the prompt has 0 tokens: it needs at least 1 and at most 8 (--max-prompt-len)\n",
        ),
        (("--prompt", ""), "error: the prompt has 0 tokens: it needs at least 1 and at most 8 (--max-prompt-len)\n"),
        (
            ("--prompt-ids", "0 1 2 3 4 5 6 7 8"),
            "error: the prompt has 9 tokens and the limit is 8: shorten it, "
            "or compile with --max-prompt-len 9 or more\n",
        ),
        (("--prompt-ids", "1 x"), "error: --prompt-ids: 'x' is no token id, give numbers such as '1 2 3'\n"),
        (
            ("--prompt-ids", "1", "--force-ids", "-4"),
            "error: --force-ids: '-4' is no token id, give numbers such as '1 2 3'\n",
        ),
        (("--prompt-ids", "23"), "error: the prompt has the id 23 at place 0: ids of this model are 0 to 22\n"),
        (("--prompt-ids", "1", "--max-new-tokens", "0"), "error: --max-new-tokens is 0: it must be 1 or more\n"),
        (("--prompt-ids", "1", "--top-p", "2"), "error: --top-p is 2.0: it must be above 0 and at most 1\n"),
        (
            ("--prompt", "a"),
            "error: the blob carries no tokenizer.json: give token ids with --prompt-ids, "
            "or compile a folder that holds one\n",
        ),
        (
            ("--prompt-ids", "1", "--chunk", "4"),
            "error: {blob} is compiled already: options of compilation need a model\nhelp: npuc run --help\n",
        ),
    ],
)
def test_wrong_use_is_refused_by_name(
    npuc: Runner, compiler: Compiler, image: FakeImage, blob: Path, words: tuple[str, ...], message: str
) -> None:
    result = npuc("run", blob, *words, "--json")
    assert (result.code, result.out, result.err) == (2, "", message.format(blob=blob))


@pytest.mark.parametrize(
    ("words", "mode"), [((), "fast"), (("--mode", "exact"), "exact"), (("--mode", "fast"), "fast")]
)
def test_the_mode_is_the_devices(
    npuc: Runner, compiler: Compiler, image: FakeImage, blob: Path, words: tuple[str, ...], mode: str
) -> None:
    result = npuc("run", blob, "--prompt-ids", "1", "--max-new-tokens", "1", *words, "--json")
    assert json.loads(result.out)["tokens"] == greedy([1], 1)
    assert image.meta["modes"] == [mode]


def test_a_model_is_compiled_first_and_leaves_no_file(
    npuc: Runner, compiler: Compiler, image: FakeImage, model: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    result = npuc("run", model, "--prompt-ids", "1", "--chunk", "4", "--json")
    assert (result.code, result.err) == (0, "compiling model.onnx\n")
    ((source, blob, options),) = compiler.calls
    assert (source, options.chunk) == (model, 4)
    assert blob is not None and not blob.exists()
    assert sorted(tmp_path.iterdir()) == before


def test_the_embedded_model_is_compiled_once_for_each_set_of_options(
    npuc: Runner, compiler: Compiler, image: FakeImage
) -> None:
    first = npuc("run", "--prompt-ids", "1", "--json")
    second = npuc("run", "--prompt-ids", "1", "--json")
    other = npuc("run", "--prompt-ids", "1", "--precision", "f32", "--json")
    assert [result.err for result in (first, second, other)] == [
        "compiling the embedded model\n",
        "",
        "compiling the embedded model\n",
    ]
    assert [source.name for source, _, _ in compiler.calls] == ["default_model", "default_model"]


def test_a_damaged_blob_in_the_cache_is_compiled_anew(
    npuc: Runner, compiler: Compiler, image: FakeImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    import npurt

    npuc("run", "--prompt-ids", "1", "--json")
    verdicts = [npurt.BlobError("section .npu.dma: its digest is wrong")]

    def load(path: Path) -> FakeImage:
        if verdicts:
            raise verdicts.pop()
        return image

    monkeypatch.setattr(npurt, "load", load)
    result = npuc("run", "--prompt-ids", "1", "--json")
    assert (result.code, result.err) == (0, "compiling the embedded model\n")
    assert len(compiler.calls) == 2


def test_the_cache_keeps_the_newest_blobs(npuc: Runner, compiler: Compiler, image: FakeImage, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "npuc"
    folder.mkdir(parents=True)
    for age in range(12):
        path = folder / f"default-{age}.npu"
        path.write_bytes(b"")
        os.utime(path, (1000 - age, 1000 - age))
    npuc("run", "--prompt-ids", "1", "--json")
    kept = {path.stem for path in folder.iterdir()}
    assert len(kept) == 8 and {f"default-{age}" for age in range(7)} < kept


def test_without_a_cache_the_embedded_model_still_answers(
    npuc: Runner, compiler: Compiler, image: FakeImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    result = npuc("run", "--prompt-ids", "1", "--max-new-tokens", "1", "--json")
    assert json.loads(result.out)["tokens"] == greedy([1], 1)
    assert compiler.calls[0][1] is not None and not compiler.calls[0][1].exists()
