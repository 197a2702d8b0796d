"""`npuc check`: models that agree, and injected faults that are named: a kernel call, a step of the graph, a weight."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from npuc.cli import main
from npuc.cli.blobs import DEFAULT_MODEL
from npuc.compare import Request, Result, check
from npuc.driver import CompileOptions
from npuc.graph.fuse import norms
from npuc.lower import walk
from npuc.lower.expression import Expression, Step
from npuc.lower.rules import RULES
from npurt.abi import blob as abi
from tests.support.blobs import sections, with_digests
from tests.support.models import CORPUS, compile_to, make_case

LLAMA, GPT2 = CORPUS / "llama-torchdyn-op18", CORPUS / "gpt2-torchdyn-op18"
SMALL: dict[str, Any] = {"chunk": 4, "max_prompt_len": 10, "capacities": (11, 16)}
ONE: dict[str, Any] = {**SMALL, "capacities": (11,)}
WORDS = ["--chunk", "4", "--max-prompt-len", "10", "--capacities", "11"]
ANSWER = {
    "logits of the prompt": (7, 320),
    "logits of the steps": (4, 320),
    "logits of a step in generate.16": (1, 320),
}


def checked(model: Path, precision: str = "f32", *, everything: bool = False, **options: Any) -> Result:
    return check(Request(model, CompileOptions(precision=precision, **options), everything=everything))


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_language_models_agree_in_every_group(model: Path, precision: str) -> None:
    result = checked(model, precision, everything=True, **SMALL)
    assert result.agrees, result.lines()
    assert {name: part.shape for name, part in result.parts.items()} == ANSWER
    assert result.tokens is not None and result.tokens[0] == result.tokens[1]
    assert result.tally is not None and result.tally.compared > 100 and result.tally.drifted == 0


def test_a_head_of_the_last_row_alone(tmp_path: Path) -> None:
    """The model leaves out the logits of the other rows, the program has them: what both have is compared."""
    model = onnx.load(LLAMA / "model.onnx")
    head = next(node for node in model.graph.node if "logits" in node.output)
    last = numpy_helper.from_array(np.array([-1]), "last_row")
    pick = onnx.helper.make_node("Gather", [head.input[0], "last_row"], ["last_hidden"], "pick", axis=1)
    head.input[0] = "last_hidden"
    model.graph.initializer.append(last)
    model.graph.node.insert(list(model.graph.node).index(head), pick)
    onnx.save(model, tmp_path / "model.onnx")
    result = checked(tmp_path / "model.onnx", everything=True, **SMALL)
    assert result.agrees, result.lines()
    assert {name: part.shape for name, part in result.parts.items()} == {**ANSWER, "logits of the prompt": (1, 320)}


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", ["a02_padded_rows", "a05_norm_half", "a11_assign_first"])
def test_graphs_agree_in_every_group(name: str, precision: str, tmp_path: Path) -> None:
    model, _ = make_case(name, tmp_path)
    result = checked(model, precision, everything=True)
    assert result.agrees, result.lines()
    assert result.tally is not None and result.tally.compared >= 1


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_the_embedded_model_agrees(precision: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", str(DEFAULT_MODEL), "--chunk", "8", "--max-prompt-len", "16", "--precision", precision]
    assert main([*words, "--prompt-ids", "0 365 13 269 401 270 260 11 12 9", "--tokens", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agrees"] and found["step"] is None and found["group"] is None and found["blob"] == []
    assert found["tokens"]["onnxruntime"] == found["tokens"]["device"] and len(found["tokens"]["device"]) == 3
    assert found["parts"]["logits of the prompt"]["shape"] == [10, 2048]


def test_fast_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(LLAMA), *WORDS, "--mode", "fast", "--tokens", "2", "--all"]) == 0
    assert "the steps of the graph keep the result; all " in capsys.readouterr().out


def test_given_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, arrays = make_case("a02_padded_rows", tmp_path)
    inputs = {key[4:]: value for key, value in arrays.items() if key.startswith("in__")}
    np.savez(tmp_path / "in.npz", **inputs)
    assert main(["check", str(model), "--input", str(tmp_path / "in.npz"), "--precision", "f32"]) == 0
    out = capsys.readouterr().out
    first, second = out.splitlines()
    assert first == "agrees with onnxruntime (tolerance: error <= 0.001 + 0.001 x value)"
    assert second.startswith("  ok   output y [1, 7, 8]: max error ")


def test_a_wrong_kernel_call_is_the_first_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rotary turns by the negative angle: the queries of the first layer, in the first run."""
    right = RULES["npuc", "Rotary"]

    def backwards(low, node):
        right(low, node)
        call = low.calls.pop()
        x, cos, sin, out = call.arrays
        negative = low.temporary("negative", sin.shape, sin.dtype)
        low.call("map1", (sin, negative), node, fn=Expression(1, (Step("Neg", (0,)),)))
        low.calls.append(replace(call, arrays=(x, cos, negative, out)))

    monkeypatch.setitem(RULES, ("npuc", "Rotary"), backwards)
    assert main(["check", str(LLAMA), *WORDS, "--precision", "f32"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "diverges from onnxruntime (tolerance: error <= 0.001 + 0.001 x value)"
    assert [line[:7] for line in lines[1:3]] == ["  FAIL "] * 2
    assert lines[4:7] == [
        "the steps of the graph keep the result",
        "first group that diverges: node_unsqueeze_14~Rotary (npuc.Rotary) in entry prefill, n_past 0, n_new 4",
        "  value    node_unsqueeze_14~Rotary_out f32[1, 4, 4, 16]",
    ]
    assert lines[7].startswith("  error    max error 3.97, relative ")
    assert lines[8].startswith("  kernel   map1, rotary(") and lines[8].endswith(" on shave")
    assert lines[9].startswith("  sources  node_unsqueeze_14, node_unsqueeze_13, node_mul_141, ")
    assert len(lines) == 10


def test_a_wrong_cache_write_is_the_first_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are kept among the values: all that the first run computes is right, but not what it keeps."""
    right = walk.append

    def swapped(low, state, rows, buffer, *more):
        other = state.id.removesuffix("key") + "value" if state.id.endswith("key") else state.id
        held = {region.buffer.name: region.buffer for region in low.at.values()}
        right(low, state, rows, held.get(f"state.{other}", buffer), *more)

    monkeypatch.setattr(walk, "append", swapped)
    result = checked(LLAMA, "f16", **ONE)
    assert result.step is None and result.group is not None
    assert (result.group.entry, result.group.n_past) == ("prefill", 0)
    assert result.group.group.state is not None and result.group.group.kernels[-1].startswith("append_rows")


def test_a_wrong_epsilon_is_the_first_group(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RULES["npuc", "RMSNorm"]

    def loose(low, node):
        right(low, node)
        low.calls[-1] = replace(low.calls[-1], params={"eps": 1.0})

    monkeypatch.setitem(RULES, ("npuc", "RMSNorm"), loose)
    result = checked(LLAMA, "f16", **ONE)
    assert not result.agrees and result.step is None and result.group is not None
    assert (result.group.entry, result.group.group.node) == ("prefill", "node_pow_1~RMSNorm")
    assert result.group.group.sources[:3] == ("node_pow_1", "node_mean", "node_add_134")
    assert result.group.group.dtype == "f16" and result.group.difference.shape == (1, 4, 64)


def test_a_wrong_rewrite_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    right = norms._measure

    def doubled(region):
        norm = right(region)
        return norm and replace(norm, weight=2 * norm.weight)

    monkeypatch.setattr(norms, "_measure", doubled)
    result = checked(LLAMA, "f32", **ONE)
    assert not result.agrees and result.group is None and result.step is not None
    assert result.step.step == "norms"
    assert result.lines()[-1].startswith("step norms changes the result: logits of the prompt [7, 320]: max error ")


def damaged(path: Path) -> Path:
    """The blob with one weight matrix zeroed, and right digests."""
    found = sections(path)
    data = bytearray(path.read_bytes())
    model = onnx.load(LLAMA / "model.onnx")
    matrices = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if list(tensor.dims) == [64, 64]]
    places = [data.find(np.ascontiguousarray(form).tobytes()) for matrix in matrices for form in (matrix, matrix.T)]
    place = next(place for place in places if place >= found[abi.NAME_WEIGHTS].offset)
    data[place : place + 64 * 64 * 4] = bytes(64 * 64 * 4)
    path.write_bytes(with_digests(data, found))
    return path


def test_a_damaged_blob_is_not_what_the_model_compiles_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = compile_to(tmp_path / "m.npu", LLAMA, precision="f32", **ONE)
    assert main(["check", str(LLAMA), str(path), "--tokens", "1"]) == 0
    capsys.readouterr()
    assert main(["check", str(LLAMA), str(damaged(path)), "--tokens", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "m.npu is not what the model compiles to with these options: a fresh one agrees with onnxruntime" in lines
    assert [line.split()[0] for line in lines if " weights " in line] == ["-", "+"]
    assert sum(line.startswith("    rebound ") for line in lines) >= 1


def test_a_blob_of_another_model(tmp_path: Path) -> None:
    path = compile_to(tmp_path / "m.npu", GPT2, precision="f32", **ONE)
    result = check(Request(LLAMA, CompileOptions(), blob=path))
    assert not result.agrees
    assert result.blob[0].startswith("m.npu is not what the model compiles to with these options: ")
