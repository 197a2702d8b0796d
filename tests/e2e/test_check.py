"""`npuc check`: models that agree, and injected faults that are named: a kernel call, a step of the graph, a weight."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuc.cli import main
from npuc.cli.blobs import DEFAULT_MODEL
from npuc.compare import Request, Result, check
from npuc.driver import CompileOptions
from npuc.graph.fuse import norms, rotary
from npuc.lower.rules import RULES
from npurt.abi import blob as abi
from tests.support.blobs import sections, with_digests
from tests.support.models import CORPUS, compile_to, make_case

LLAMA, GPT2 = CORPUS / "llama-torchdyn-op18", CORPUS / "gpt2-torchdyn-op18"
SMALL = {"chunk": 4, "max_prompt_len": 10, "capacities": (11, 16)}
WORDS = "--chunk 4 --max-prompt-len 10 --capacities 11,16".split()
ANSWER = {"logits of the prompt": (7, 320), "logits of the steps": (4, 320), "logits of a step in generate.16": (1, 320)}


def checked(model: Path, precision: str = "f32", *, everything: bool = False, **options: object) -> Result:
    return check(Request(model, CompileOptions(precision=precision, **options), everything=everything))  # type: ignore[arg-type]


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("model", [LLAMA, GPT2], ids=["llama", "gpt2"])
def test_language_models_agree_in_every_group(model: Path, precision: str) -> None:
    result = checked(model, precision, everything=True, **SMALL)
    assert result.agrees, result.lines()
    assert {name: part.shape for name, part in result.parts.items()} == ANSWER
    assert result.tokens is not None and result.tokens[0] == result.tokens[1]
    assert result.compared > 100


@pytest.mark.parametrize("precision", ["f32", "f16"])
@pytest.mark.parametrize("name", ["a02_padded_rows", "a05_norm_half", "a11_assign_first"])
def test_graphs_agree_in_every_group(name: str, precision: str, tmp_path: Path) -> None:
    model, _ = make_case(name, tmp_path)
    result = checked(model, precision, everything=True)
    assert result.agrees, result.lines()
    assert result.compared >= 1


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_the_embedded_model_agrees(precision: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", str(DEFAULT_MODEL), "--chunk", "8", "--max-prompt-len", "16", "--precision", precision]
    assert main([*words, "--prompt-ids", "0 365 13 269 401 270 260 11 12 9", "--tokens", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agrees"] and found["step"] is None and found["group"] is None and found["blob"] == []
    assert found["tokens"]["onnxruntime"] == found["tokens"]["device"] and len(found["tokens"]["device"]) == 3
    assert found["parts"]["logits of the prompt"]["shape"] == [10, 2048]


def test_given_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, arrays = make_case("a02_padded_rows", tmp_path)
    inputs = {key[4:]: value for key, value in arrays.items() if key.startswith("in__")}
    np.savez(tmp_path / "in.npz", **inputs)
    assert main(["check", str(model), "--input", str(tmp_path / "in.npz"), "--precision", "f32"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("agrees with onnxruntime (tolerance: error <= 0.001 + 0.001 x value)\n  ok   output y [1, 7, 8]: ")


def test_a_wrong_kernel_call_is_the_first_group(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    right = RULES["npuc", "Rotary"]

    def backwards(low, node):  # type: ignore[no-untyped-def]
        """Turns by the negative angle."""
        right(low, node)
        call = low.calls[-1]
        x, cos, sin, out = call.arrays
        tensor = node.inputs[2]
        negative = low.temporary("negative", sin.shape, sin.dtype)
        from npuc.lower.expression import Expression, Step

        assert tensor is not None
        low.calls.insert(-1, replace(call, kernel="map1", arrays=(sin, negative), params={"fn": Expression(1, (Step("Neg", (0,)),))}))
        low.calls[-1] = replace(call, arrays=(x, cos, negative, out))

    monkeypatch.setitem(RULES, ("npuc", "Rotary"), backwards)
    assert main(["check", str(LLAMA), *WORDS, "--precision", "f32"]) == 1
    lines = capsys.readouterr().out.splitlines()
    print(lines)
    assert 0


def test_a_wrong_epsilon_is_the_first_group(monkeypatch: pytest.MonkeyPatch) -> None:
    right = RULES["npuc", "RMSNorm"]

    def loose(low, node):  # type: ignore[no-untyped-def]
        right(low, node)
        low.calls[-1] = replace(low.calls[-1], params={"eps": 1.0})

    monkeypatch.setitem(RULES, ("npuc", "RMSNorm"), loose)
    result = checked(LLAMA, "f16", **SMALL)
    assert not result.agrees and result.step is None and result.group is not None
    print(result.lines())
    assert 0


def test_a_wrong_rewrite_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    right = norms._measure

    def doubled(region):  # type: ignore[no-untyped-def]
        norm = right(region)
        return norm and replace(norm, weight=2 * norm.weight)

    monkeypatch.setattr(norms, "_measure", doubled)
    result = checked(LLAMA, "f32", **SMALL)
    print(result.lines())
    assert 0


def damaged(path: Path) -> Path:
    """The blob with the first half of its weights zeroed, and right digests."""
    found = sections(path)
    data = bytearray(path.read_bytes())
    weights = found[abi.NAME_WEIGHTS]
    half = weights.size // 2
    data[weights.offset : weights.offset + half] = bytes(half)
    path.write_bytes(with_digests(data, found))
    return path


def test_a_damaged_blob(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = damaged(compile_to(tmp_path / "m.npu", LLAMA, precision="f32", **SMALL))
    assert main(["check", str(LLAMA), str(path)]) == 1
    print(capsys.readouterr().out)
    assert 0
