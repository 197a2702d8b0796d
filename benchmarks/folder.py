"""An exported folder of a Llama-like decoder, as plain NumPy reads it: `config.json` and named weights."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from benchmarks.plain_numpy import Array, Layer, PlainDecoder

# `model.layers.3.self_attn.q_proj.weight` and `layers.3.q.weight` both mean q of layer 3
_LAYER = re.compile(r"layers\.(\d+)\.(?:\w+\.)?(\w+?)(?:_proj)?\.weight$")
_NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm", "attn_norm": "attention_norm"}
_NAMES = {field.name for field in fields(Layer)}


class NoPlainForm(Exception):
    """The folder holds a model that the plain decoder cannot compute; the message says why."""


@dataclass(frozen=True)
class Config:
    """Sizes of the model, from `config.json`. theta: base of the rotary angles."""

    heads: int
    groups: int
    theta: float
    eps: float
    positions: int

    @staticmethod
    def of(folder: Path) -> Config:
        """Errors: NoPlainForm where the file or a number is not there."""
        try:
            found = json.loads((folder / "config.json").read_text())
            return Config(
                found["num_attention_heads"], found["num_key_value_heads"], found["rope_theta"], found["rms_norm_eps"],
                found["max_position_embeddings"],
            )  # fmt: skip
        except (OSError, KeyError) as error:
            raise NoPlainForm(f"{folder / 'config.json'}: {error!r}") from error


class FolderDecoder(PlainDecoder):
    """The plain decoder with a folder's weights in f32. capacity: rows of the cache. Errors: NoPlainForm."""

    def __init__(self, folder: Path, capacity: int) -> None:
        config = Config.of(folder)
        layers, rest = _weights(folder / "model.onnx")
        embedding = next((name for name in rest if name.endswith(("embed.weight", "embed_tokens.weight"))), None)
        norm = next((name for name in rest if name.endswith("norm.weight")), None)
        if embedding is None or norm is None or any(set(layer) != _NAMES for layer in layers):
            raise NoPlainForm(f"{folder}: the weights do not have the names of `npuc models pull`")
        self.layers = [Layer(**layer) for layer in layers]
        self.embedding, self.norm = rest[embedding], rest[norm]
        self.heads, self.groups, self.eps = config.heads, config.groups, np.float32(config.eps)
        self.dim = self.layers[0].k.shape[0] // config.groups
        self.scale = np.float32(self.dim**-0.5)
        frequency = config.theta ** (-np.arange(0, self.dim, 2) / self.dim)
        angles = np.arange(min(capacity, config.positions))[:, None] * frequency
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self.keys = np.zeros((len(layers), config.groups, capacity, self.dim), np.float32)
        self.values = np.zeros_like(self.keys)


def _weights(path: Path) -> tuple[list[dict[str, Array]], dict[str, Array]]:
    """By layer and role, matrices as [n, k]; and what belongs to no layer, by its name."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    layers: dict[int, dict[str, Array]] = {}
    rest = {}
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor).astype(np.float32)
        found = _LAYER.search(tensor.name)
        if found is None:
            rest[tensor.name] = value
            continue
        role = _NORMS.get(found[2], found[2])
        layers.setdefault(int(found[1]), {})[role] = np.ascontiguousarray(value.T)
    return [layers[number] for number in sorted(layers)], rest
