"""Damaged blobs: each is refused with one line, or runs within memory and time; see tests.support.damage."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from npuc.cli import main
from npuc.driver import CompileOptions, compile_to_blob
from tests.support.blobs import sections
from tests.support.damage import damaged, run_damaged
from tests.support.graphs import written
from tests.support.models import CORPUS, compile_to, make_case

SAMPLE, SWEEP = 80, 4096
TOKENIZER = {
    "model": {"type": "WordLevel", "vocab": {chr(97 + i): i for i in range(29)}, "unk_token": "a"},
    "decoder": None,
    "added_tokens": [],
}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small decoder's blob, with rows in every table, weights, states and assets."""
    folder = tmp_path_factory.mktemp("damage")
    model, _ = make_case("a10_state_decoder", folder)
    (model.parent / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    (model.parent / "generation_config.json").write_text('{"eos_token_id": [28]}')
    return compile_to(folder / "m.npu", model.parent, chunk=4, max_prompt_len=8, capacities=(9, 12))


def assert_harmless(path: Path, mode: str, first: int, count: int) -> Counter[str]:
    outcomes = run_damaged(path, mode, first, count)
    assert [outcome.number for outcome in outcomes] == list(range(first, first + count))
    faults = [outcome for outcome in outcomes if outcome.kind not in ("refused", "ran") or "\\n" in outcome.text]
    assert not faults
    return Counter(outcome.kind for outcome in outcomes)


@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_sample(decoder: Path, mode: str) -> None:
    found = assert_harmless(decoder, mode, 0, SAMPLE)
    assert found["refused"] > SAMPLE // 2
    assert found["ran"] > SAMPLE // 20


def test_a_sample_of_a_program_with_host_steps(tmp_path: Path) -> None:
    body = """g (float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1, 1, 2, 2}> {
      a = Neg (x)
      r = Resize <mode = "linear"> (a, , s)
      y = Neg (r)
    }"""
    blob = tmp_path / "m.npu"
    compile_to_blob(written(tmp_path, body, opset=18), blob, CompileOptions(host_ops=("Resize",)))
    assert assert_harmless(blob, "exact", 0, SAMPLE)["refused"] > SAMPLE // 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_sweep(decoder: Path, mode: str) -> None:
    assert_harmless(decoder, mode, SAMPLE, SWEEP)


def test_the_command_line_refuses_with_one_line(
    decoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, found = decoder.read_bytes(), sections(decoder)
    path = tmp_path / "damaged.npu"
    refusals = 0
    for number in range(24):
        path.write_bytes(damaged(data, found, number))
        code = main(["run", str(path), "--prompt-ids", "1", "--max-new-tokens", "1", "--json"])
        out, err = capsys.readouterr()
        no_blob = "error: damaged.npu: not an ONNX model" in err  # its first bytes are not those of a blob
        assert code in (0, 4) or no_blob
        if code == 4:
            refusals += 1
            assert out == ""
            assert [line[:7] for line in err.splitlines() if not line.startswith("note: ")] == ["error: "]
    assert refusals > 10


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["exact", "fast"])
def test_a_sweep_of_a_blob_with_codes(tmp_path: Path, mode: str) -> None:
    model = CORPUS / "llama-genai-int4-prunedhead" / "model.onnx"
    blob = compile_to(tmp_path / "m.npu", model, chunk=2, max_prompt_len=4, min_response_len=2, capacities=(5,))
    assert_harmless(blob, mode, 0, SWEEP // 4)
