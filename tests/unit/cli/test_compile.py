"""`npuc compile`: options become values, and the summary goes where it belongs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npuc.answers import AnswerCache
from npuc.frontend.errors import ModelRefused
from tests.unit.cli.conftest import Compiler, Runner


def test_defaults_are_left_to_the_compiler(npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path) -> None:
    result = npuc("compile", model, "-o", tmp_path / "out.npu")
    assert result.code == 0
    ((source, blob, options),) = compiler.calls
    assert (source, blob) == (model, tmp_path / "out.npu")
    assert (options.target, options.precision) == ("npu40xx", "f16")
    assert (options.max_prompt_len, options.min_response_len, options.chunk, options.capacities) == (None,) * 4
    assert (options.dims, options.state_rows, options.llm) == ({}, {}, None)


def test_every_option_arrives(npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path) -> None:
    words = (
        "--target t.toml --precision f32 --max-prompt-len 8 --chunk 4 --min-response-len 2 --capacities 10,16 "
        "--dim batch=1 --dim a=b=7 --state-rows cache=0 --value s=3,-4 --value e= "
        "--host-ops Resize,Einsum"
    )
    assert npuc("compile", model, "-o", tmp_path / "x", *words.split()).code == 0
    options = compiler.calls[0][2]
    assert (options.target, options.precision) == ("t.toml", "f32")
    assert (options.max_prompt_len, options.chunk, options.min_response_len) == (8, 4, 2)
    assert options.capacities == (10, 16)
    assert options.dims == {"batch": 1, "a=b": 7}
    assert options.state_rows == {"cache": 0}
    assert options.host_ops == ("Resize", "Einsum")
    assert {name: array.tolist() for name, array in options.values.items()} == {"s": [3, -4], "e": []}


def test_answers_are_kept_in_the_users_cache_unless_told_otherwise(
    npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("NPUC_NO_CACHE", raising=False)
    assert npuc("compile", model, "-o", tmp_path / "x").code == 0
    assert npuc("compile", model, "-o", tmp_path / "x", "--no-cache").code == 0
    monkeypatch.setenv("NPUC_NO_CACHE", "1")
    assert npuc("compile", model, "-o", tmp_path / "x").code == 0
    kept = [options.answers for _, _, options in compiler.calls]
    assert kept == [AnswerCache(tmp_path / "cache" / "npuc" / "choices"), None, None]


def test_the_summary_goes_to_stdout_and_the_report_to_stderr(
    npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path
) -> None:
    result = npuc("compile", model, "-o", tmp_path / "x")
    assert result.out == "chunk       4 rows\n"
    assert result.err == "chunk 128 is more than the prompt limit 8: 8 is used\n"


def test_json_is_one_object(npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path) -> None:
    result = npuc("compile", model, "-o", tmp_path / "x", "--json")
    found = json.loads(result.out)
    assert found["blob"] == str(tmp_path / "x") and found["blob_bytes"] == 7
    assert found["report"] == ["chunk 128 is more than the prompt limit 8: 8 is used"]


def test_a_stopped_compilation_writes_no_blob(npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path) -> None:
    assert npuc("compile", model, "--stop-after", "fold", "--dump-after", "fold", tmp_path / "dump").code == 0
    _, blob, options = compiler.calls[0]
    assert blob is None
    assert (options.stop_after, options.dump_after) == ("fold", ("fold", tmp_path / "dump"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "error: say where the blob goes: -o BLOB\n"),
        (
            ["-o", "x", "--stop-after", "fold"],
            "error: -o and --stop-after exclude each other: a stopped compilation writes no blob\n",
        ),
        (["-o", "no/x"], "error: Invalid value for '-o' / '--output': there is no folder no\n"),
        (["-o", "x", "--dim", "batch"], "error: Invalid value for '--dim': 'batch' is not of the form NAME=VALUE\n"),
        (["-o", "x", "--dim", "=1"], "error: Invalid value for '--dim': '=1' is not of the form NAME=VALUE\n"),
        (
            ["-o", "x", "--state-rows", "a=-1"],
            "error: Invalid value for '--state-rows': 'a=-1' is not of the form ID=N\n",
        ),
        (
            ["-o", "x", "--capacities", "4,,8"],
            "error: Invalid value for '--capacities': '4,,8' is not a list of numbers above 0, such as 256,1152\n",
        ),
        (
            ["-o", "x", "--capacities", "0"],
            "error: Invalid value for '--capacities': '0' is not a list of numbers above 0, such as 256,1152\n",
        ),
        (
            ["-o", "x", "--value", "s=3,x"],
            "error: Invalid value for '--value': 's=3,x' is not of the form NAME=A,B\n",
        ),
        (["-o", "x", "--chunk", "0"], "error: Invalid value for '--chunk': 0 is not in the range x>=1.\n"),
    ],
)
def test_wrong_options_are_named(npuc: Runner, compiler: Compiler, model: Path, words: list[str], message: str) -> None:
    result = npuc("compile", model, *words)
    assert (result.code, result.err) == (2, message + "help: npuc compile --help\n")
    assert compiler.calls == []


def test_a_blob_is_no_model(npuc: Runner, compiler: Compiler, blob: Path, tmp_path: Path) -> None:
    result = npuc("compile", blob, "-o", tmp_path / "x")
    assert result.code == 2 and compiler.calls == []
    assert result.err.startswith(f"error: {blob} is compiled already: `npuc run` and `npuc exec` take it as it is\n")


def test_a_refused_model_is_exit_code_3(npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path) -> None:
    compiler.error = ModelRefused(["a cycle through node a"], "model.onnx")
    result = npuc("compile", model, "-o", tmp_path / "x", "--json")
    assert (result.code, result.out, result.err) == (3, "", "error: model.onnx: a cycle through node a\n")


def test_ctrl_c_is_one_line(npuc: Runner, compiler: Compiler, model: Path, tmp_path: Path) -> None:
    compiler.error = KeyboardInterrupt()
    result = npuc("compile", model, "-o", tmp_path / "x")
    assert (result.code, result.out, result.err) == (130, "", "interrupted\n")
    assert not (tmp_path / "x").exists()
