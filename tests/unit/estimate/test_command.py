"""`npuc estimate` from the command line: texts, JSON, errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuc.cli import main
from npurt.target import target_names
from tests.support.graphs import written
from tests.unit.estimate.shapes import MIXED, TINY, hollow

RUN = {
    "us", "bound_us", "n_past", "ddr_read", "ddr_written", "macs", "cycles", "parts_us", "bound_parts_us", "limited_by",
    "bound_by",
}  # fmt: skip
TEXT = """\
tiny: decoder, 17.6e3 parameters
prompt 40, then 24 new tokens; chunks of 16, capacity 64; weights f16
weights: f16 36.4 kB, f32 72.8 kB, int8 27.2 kB, int4 18.5 kB
KV cache: 128 B a token, 10.1 kB for 79 rows
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hollow(tmp_path_factory.mktemp("estimate") / "tiny", TINY)


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    code = main(["estimate", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def found(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, Any]:
    code, out, err = run(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def test_the_text(capsys: pytest.CaptureFixture[str], tiny: Path):
    code, out, err = run(capsys, tiny, "--target", "npu40xx", "--prompt", "40", "--tokens", "24", "--chunk", "16")
    assert (code, err) == (0, "")
    head, table, rest = out.split("\n\n")
    assert head + "\n" == TEXT
    labels = [line.split("  ")[0] or line.strip() for line in table.splitlines()]
    assert labels[:5] == ["npu40xx", "computed on", "fits", "device memory", "first token"]
    rows = dict(line.rsplit("  ", 1) for line in table.splitlines() if "note" not in line)
    assert {label.strip(): cell for label, cell in rows.items()}["fits"] == "yes"
    assert table.splitlines()[-2:] == [
        "note: 20 weights have no data; only their shapes count",
        "note: int8, int4: what a model with such weights in its file gives; npuc compile quantises none",
    ]
    assert rest.startswith("* npu40xx rests on assumed numbers: engines.dpu.launch, ")


def test_the_json(capsys: pytest.CaptureFixture[str], tiny: Path):
    answer = found(capsys, tiny)
    assert list(answer) == [
        "model", "sizes", "precision", "dma_latency", "weights_bytes", "states", "experts", "notes", "targets",
    ]  # fmt: skip
    assert [row["target"] for row in answer["targets"]] == target_names()
    for row in answer["targets"]:
        assert set(row) == {
            "target", "tiles", "tile", "programs", "fits", "limits", "memory_bytes", "first_token_s",
            "first_token_bound_s", "tokens_per_s", "tokens_per_s_bound", "token", "chunk", "formats", "assumed",
        }  # fmt: skip
        assert set(row["token"]) == set(row["chunk"]) == RUN
        assert [form["precision"] for form in row["formats"]] == ["f16", "int8", "int4"]
        assert row["tokens_per_s"] <= 1.02 * row["tokens_per_s_bound"]
        assert row["first_token_s"] >= 0.98 * row["first_token_bound_s"]
        assert row["programs"] == row["target"].startswith("npu")
    npu = answer["targets"][target_names().index("npu40xx")]
    matrices = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 48) + 64 * 32
    pairs = 2 * 4 * (npu["token"]["n_past"] + 1) * 16
    assert npu["token"]["macs"] == matrices + pairs
    assert answer["states"] == {"count": 4, "bytes": 2 * 2 * 2 * 8 * 95 * 2, "bytes_per_token": 128, "rows": 95}


def test_other_precisions_and_readings(capsys: pytest.CaptureFixture[str], tiny: Path):
    held = found(capsys, tiny, "--target", "npu40xx", "--precision", "int4")["targets"][0]
    assert [form["precision"] for form in held["formats"]] == ["int4", "f16", "int8"]
    ahead = found(capsys, tiny, "--target", "npu40xx", "--precision", "int4", "--dma-latency", "overlapped")
    assert ahead["dma_latency"] == "overlapped"
    assert ahead["targets"][0]["tokens_per_s"] >= held["tokens_per_s"]


def test_experts(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    folder = hollow(tmp_path / "mixed", MIXED)
    answer = found(capsys, folder, "--target", "npu40xx")
    assert answer["experts"] == {"experts": 16, "chosen": 2, "rows": 128, "needed": 16.0}
    _, out, _ = run(capsys, folder, "--target", "npu40xx")
    assert (
        "experts: 2 of 16 a token; 128 tokens need 16 different ones (assumed: equally likely and independent)" in out
    )


def test_a_plain_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    numbers = ", ".join(["1"] * 32)
    body = f"m (float[n, 8] x) => (float[n, 4] y) <float[8, 4] w = {{{numbers}}}> {{ y = MatMul (x, w) }}"
    path = written(tmp_path, body, 21)
    answer = found(capsys, path, "--dim", "n=16", "--target", "npu40xx")
    assert (answer["model"]["kind"], answer["sizes"], answer["model"]["parameters"]) == ("graph", None, 32)
    one = answer["targets"][0]["run"]
    assert set(one) == RUN
    assert (one["macs"], one["ddr_read"], one["ddr_written"]) == (16 * 8 * 4, 2 * (16 * 8 + 32), 4 * 16 * 4)
    code, _, err = run(capsys, path)
    assert (code, err) == (
        3, "error: dim 'n' of input 'x' has no value; give it with --dim n=VALUE\n"
    )  # fmt: skip


def test_errors(capsys: pytest.CaptureFixture[str], tiny: Path, tmp_path: Path):
    code, _, err = run(capsys, tiny, "--target", "npu99xx")
    assert code == 2
    assert err.startswith("error: ") and "npu40xx" in err
    code, _, err = run(capsys, tiny, "--prompt", "0")
    assert code == 2 and "--prompt" in err
    code, _, err = run(capsys, tiny, "--precision", "int3")
    assert code == 2 and "'f16', 'f32', 'int8', 'int4'" in err
    code, _, err = run(capsys, tiny, "--prompt", "200000")
    assert (code, err) == (2, "error: max_prompt_len is 200000; it must be at most 131072\n")
    blob = tmp_path / "x.npu"
    blob.write_bytes(b"\x7fELF")
    code, _, err = run(capsys, blob)
    assert code == 2 and "`npuc profile` says how long it takes" in err


def test_compile_still_refuses_what_has_no_data(capsys: pytest.CaptureFixture[str], tiny: Path, tmp_path: Path):
    code = main(["compile", str(tiny), "-o", str(tmp_path / "x.npu")])
    assert code == 3
    assert capsys.readouterr().err == "error: model.onnx: external data file 'model.onnx_data' is missing\n"


def test_sizes_beyond_the_positions_are_noted(capsys: pytest.CaptureFixture[str], tiny: Path):
    _, out, _ = run(capsys, tiny, "--target", "npu40xx", "--prompt", "100", "--tokens", "20")
    assert "note: 100 and 20 tokens are beyond the 64 positions that the model's configuration allows\n" in out
