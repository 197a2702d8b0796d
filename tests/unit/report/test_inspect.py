"""What `npuc inspect` tells of a blob."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npuc.emit import write_blob
from npuc.report import inspect_blob, inspect_text
from npurt.target import load_target
from tests.unit.emit.programs import Model, model


@pytest.fixture(scope="module")
def small() -> Model:
    return model()


@pytest.fixture(scope="module")
def path(small: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("inspect") / "small.blob"
    write_blob(*small.arguments(), out)
    return out


def test_entries(path: Path, small: Model) -> None:
    found = inspect_blob(path)
    assert (found["version"], found["target"], found["precision"]) == ("1.1", "npu40xx", "f16")
    assert found["file_bytes"] == path.stat().st_size
    first = found["entries"][0]
    assert first["name"] == "prefill" and (first["rows"], first["capacity"]) == (4, 16)
    assert first["tasks"] == {"total": 30, "dma.in": 17, "dma.out": 4, "dpu": 6, "shave": 3}
    assert first["cmx_peak"] == small.programs[0].cmx_peak
    assert first["cmx_bytes"] == load_target("npu40xx").memories["cmx"].bytes
    assert first["barriers"] == 29
    # ids, embedding rows, cos rows; per layer weights, table, past; then the rows appended and the output
    assert first["ddr_read"] == 4 * 4 + 4 * 16 * 2 + 4 * 8 * 2 + 2 * (24 * 16 * 2 + 24 * 8 + 2 * 16 * 8 * 2)
    assert first["ddr_written"] == 2 * 2 * 4 * 8 * 2 + 4 * 16 * 2 + 4 * 16 * 2
    assert first["inputs"] == [{"name": "input_ids", "dtype": "i32", "shape": [1, 4], "graph_dtype": "i64"}]


def test_sections_states_and_assets(path: Path) -> None:
    found = inspect_blob(path)
    sections = {s["name"]: s for s in found["sections"]}
    assert sections[".npu.dma"] == {
        "name": ".npu.dma", "type": "NPU_DMA", "flags": ["alloc"], "memory": "firmware", "bytes": 42 * 192, "align": 8,
    }  # fmt: skip
    assert sections[".npu.scratch"]["flags"] == ["write", "alloc"] and sections[".npu.scratch"]["bytes"] == 128
    assert sections[".npu.weights"]["memory"] == "dma" and sections[".npu.weights"]["align"] == 4096
    assert sections[".npu.shave.text"]["memory"] == "shave" and sections[".symtab"]["memory"] == ""
    assert found["states"][1] == {
        "id": "k1", "class": "append", "why": "rows are added", "dtype": "f16", "shape": [1, 2, 19, 8], "bytes": 608,
    }  # fmt: skip
    assert found["assets"] == [{"name": "tokenizer.json", "bytes": 2}]


def test_the_object_is_plain_json(path: Path) -> None:
    found = inspect_blob(path)
    assert json.loads(json.dumps(found)) == found


def test_text(path: Path) -> None:
    lines = inspect_text(inspect_blob(path)).splitlines()
    assert lines[0] == f"blob version 1.1, {path.stat().st_size / 1000:.1f} kB, for npu40xx in f16"
    assert lines[2].split("  ")[0] == "entry"
    assert lines[3].startswith("prefill")
    assert "3.8 kB of 1.5 MB" in lines[3]
    assert lines[-1].split() == ["k1", "append", "f16[1,2,19,8]", "608", "rows", "are", "added"]


def test_an_unknown_target_has_no_capacity(small: Model, tmp_path: Path) -> None:
    write_blob(small.programs, small.states, small.metadata | {"target": "npu99xx"}, {}, tmp_path / "x")
    found = inspect_blob(tmp_path / "x")
    assert [entry["cmx_bytes"] for entry in found["entries"]] == [None, None]
    assert " of " not in inspect_text(found).splitlines()[3]
