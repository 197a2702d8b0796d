"""The shipped default model: its files, its state variables, and that it computes what the trained network computed.

The reference (logits and greedy tokens of the torch network) is written by the recipe; torch is not needed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tokenizers
from numpy.typing import NDArray

from models.default.decoder import build_decoder
from models.default.export import LIMIT, read_folder
from models.default.sample import generate
from models.default.shape import BOS, EOS, Shape, shape_of

ort = pytest.importorskip("onnxruntime")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "npuc" / "data" / "default_model"
REFERENCE = Path(__file__).parent / "data" / "default_model.npz"

Array = NDArray[np.float32]


def pure(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, tuple[str, str]]]:
    """Makes every ReadValue an input and the value of every Assign an output.

    Gives back the model and, for each variable id, the names of its input and output.
    """
    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    names: dict[str, tuple[str, str]] = {}
    kept = [n for n in graph.node if n.domain != "npuc"]
    states = [
        {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute} | {"node": n}
        for n in graph.node
        if n.domain == "npuc"
    ]
    writes = {s["variable_id"]: s["node"].input[0] for s in states if s["node"].op_type == "Assign"}
    for state in (s for s in states if s["node"].op_type == "ReadValue"):
        source, target = state["node"].output[0], writes[state["variable_id"]]
        names[state["variable_id"].decode()] = source, target
        for values, name in ((graph.input, source), (graph.output, target)):
            dims = [d if d >= 0 else None for d in state["shape"]]
            values.append(onnx.helper.make_tensor_value_info(name, state["dtype"], dims))
    del graph.node[:]
    graph.node.extend(kept)
    return model, names


class Runner:
    """Runs a pure model in onnxruntime, with the caches carried from call to call."""

    def __init__(self, model: onnx.ModelProto, caches: Sequence[tuple[str, str]], shape: Shape) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.caches, self.shape = list(caches), shape
        self.reset()

    def reset(self) -> None:
        empty = np.zeros((1, self.shape.kv_heads, 0, self.shape.head_dim), np.float32)
        self.values: list[Array] = [empty] * len(self.caches)
        self.seen: list[int] = []
        self.mask: list[int] = []

    def run(self, ids: Sequence[int], mask: Sequence[int] | None = None) -> Array:
        """Logits [rows, vocab] of further tokens; a mask of 0 marks padding, which has no position of its own."""
        new = list(mask) if mask is not None else [1] * len(ids)
        self.mask += new
        places = np.maximum(np.cumsum(self.mask) - 1, 0)[-len(ids) :]
        feeds = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": np.array([self.mask], np.int64),
            "position_ids": places[None].astype(np.int64),
        }
        feeds |= {name: value for (name, _), value in zip(self.caches, self.values, strict=True)}
        logits, *self.values = self.session.run(["logits", *(out for _, out in self.caches)], feeds)
        self.seen += ids
        return np.asarray(logits[0], np.float32)

    def following(self, tokens: Sequence[int]) -> Array:
        """Next-token logits for `sample.generate`: only the tokens not yet seen are run."""
        if list(tokens[: len(self.seen)]) != self.seen:
            self.reset()
        logits: Array = self.run(tokens[len(self.seen) :])[-1]
        return logits


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return onnx.load(FOLDER / "model.onnx")


@pytest.fixture(scope="module")
def shape() -> Shape:
    return shape_of(json.loads((FOLDER / "config.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def reference() -> dict[str, NDArray[Any]]:
    with np.load(REFERENCE) as stored:
        return dict(stored)


@pytest.fixture(params=["stateful", "pairs"])
def runner(request: pytest.FixtureRequest, model: onnx.ModelProto, shape: Shape) -> Iterator[Runner]:
    if request.param == "stateful":
        plain, names = pure(model)
        yield Runner(plain, list(names.values()), shape)
    else:
        parts = [f"{i}.{part}" for i in range(shape.layers) for part in ("key", "value")]
        caches = [(f"past_key_values.{p}", f"present.{p}") for p in parts]
        yield Runner(build_decoder(*read_folder(FOLDER), "pairs"), caches, shape)


def test_the_folder_is_small_and_complete() -> None:
    files = {p.name: p.stat().st_size for p in FOLDER.iterdir()}
    assert set(files) == {"model.onnx", "tokenizer.json", "config.json", "generation_config.json"}
    assert 1_000_000 <= sum(files.values()) <= LIMIT


def test_inputs_outputs_and_variables(model: onnx.ModelProto, shape: Shape) -> None:
    def dims(value: onnx.ValueInfoProto) -> list[int | str]:
        return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]

    onnx.checker.check_model(model)
    assert {v.name: dims(v) for v in model.graph.input} == {
        "input_ids": [1, "sequence"],
        "attention_mask": [1, "total"],
        "position_ids": [1, "sequence"],
    }
    assert {v.name: dims(v) for v in model.graph.output} == {"logits": [1, "sequence", shape.vocab]}
    assert {(o.domain, o.version) for o in model.opset_import} == {("", 17), ("npuc", 1)}
    assert model.ir_version == 9
    states = [n for n in model.graph.node if n.domain == "npuc"]
    found: dict[str, list[str]] = {}
    for node in states:
        at = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert list(at["shape"]) == [1, shape.kv_heads, -1, shape.head_dim]
        assert at["dtype"] == onnx.TensorProto.FLOAT
        found.setdefault(at["variable_id"].decode(), []).append(node.op_type)
    assert found == {
        f"layers.{i}.{part}": ["ReadValue", "Assign"] for i in range(shape.layers) for part in ("key", "value")
    }


def test_the_exporter_gives_the_shipped_bytes(model: onnx.ModelProto) -> None:
    again = build_decoder(*read_folder(FOLDER), "stateful")
    assert again.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("n", range(3))
def test_logits_and_greedy_tokens_are_those_of_torch(
    runner: Runner, reference: dict[str, NDArray[Any]], n: int
) -> None:
    prompt = [int(t) for t in reference[f"prompt_{n}"]]
    np.testing.assert_allclose(runner.run(prompt)[-2:], reference[f"logits_{n}"], atol=2e-3, rtol=1e-4)
    runner.reset()
    wanted = [int(t) for t in reference[f"greedy_{n}"]]
    assert generate(runner.following, prompt, len(wanted), stop=False) == wanted


def test_prefill_in_chunks_equals_the_whole(runner: Runner, reference: dict[str, NDArray[Any]]) -> None:
    prompt = [int(t) for t in reference["prompt_1"]]
    whole = runner.run(prompt)
    runner.reset()
    parts = [runner.run(prompt[a:b]) for a, b in ((0, 1), (1, 4), (4, len(prompt)))]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("pad", ["left", "right"])
def test_padding_is_never_seen(runner: Runner, reference: dict[str, NDArray[Any]], pad: str) -> None:
    prompt = [int(t) for t in reference["prompt_0"]]
    whole = runner.run(prompt)
    runner.reset()
    filler, blank = [EOS] * 3, [0] * 3
    ids, mask = (
        (filler + prompt, blank + [1] * len(prompt)) if pad == "left" else (prompt + filler, [1] * len(prompt) + blank)
    )
    rows = runner.run(ids, mask)
    np.testing.assert_allclose(rows[3:] if pad == "left" else rows[:-3], whole, atol=1e-4, rtol=1e-4)


def test_a_sample_reads_like_the_text(runner: Runner) -> None:
    """Judged without the training text: plain letters, many different words, the common ones among them."""
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    prompt = tokenizer.encode("In the beginning").ids
    assert prompt[0] == BOS
    new = generate(runner.following, prompt, 200, np.random.default_rng(7), stop=False)
    text = tokenizer.decode(prompt + new)
    assert text.startswith("In the beginning")
    assert re.fullmatch(r"[A-Za-z ,.:;?!'()\n-]+", text)
    found = re.findall(r"[a-z']+", text.lower())
    assert 80 < len(found) and len(set(found)) > 50
    common = {"the", "and", "of", "that", "to", "in", "he", "shall", "unto", "for", "i", "his", "they", "be", "is"}
    assert sum(w in common for w in found) / len(found) > 0.25


def test_the_last_promised_position_still_works(runner: Runner, shape: Shape) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    verse = tokenizer.encode("And it came to pass in those days, that he went out.\n", add_special_tokens=False).ids
    ids = ([BOS] + verse * shape.positions)[: shape.positions]
    logits = runner.run(ids).astype(np.float64)
    share = np.exp(logits - logits.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    nats = -np.log(share[np.arange(shape.positions - 1), ids[1:]])
    assert nats[-32:].mean() < nats[1 : len(verse)].mean(), "far positions must profit from what they repeat"
