"""From the tensors of a GGUF file to the weights of the graph, one block at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npuc.models.gguf_file import GgufFile, StoredTensor
from npuc.models.shape import EMBEDDING, NORM, DecoderShape

BLOCK_ROWS = 2048
"""Rows of a table that are decoded at once: a few MB."""

# The weights of a layer: name in the graph, name in the GGUF file
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@dataclass(frozen=True)
class Weight:
    """One initializer. shape: as the graph has it, f32. turned: whether that is the transpose of the stored one.
    heads: above 0 where the stored rows are permuted head by head."""

    name: str
    stored: StoredTensor
    turned: bool = False
    heads: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.shape[::-1] if self.turned else self.stored.shape

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """The values in the order of the file, C order, in blocks of a few MB."""
        rows = unpermute(self.stored.rows, self.heads) if self.heads else self.stored.rows
        if self.turned:
            yield np.ascontiguousarray(self.stored.f32(rows).T)
            return
        for start in range(0, len(rows), BLOCK_ROWS):
            yield self.stored.f32(rows[start : start + BLOCK_ROWS])


def unpermute(rows: NDArray[np.generic], heads: int) -> NDArray[np.generic]:
    """Rows [heads * d, ...] of a query or key projection, from GGUF's order to that of the rotation in halves.

    GGUF's llama rotates neighbours (2j, 2j + 1), exporters rotate (j, j + d / 2): the file holds each head's halves
    interleaved. Stored rows are whole, so this is done before they are decoded.
    """
    split = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)


def weights_of(file: GgufFile, shape: DecoderShape) -> list[Weight]:
    """All weights in the order of use. Linear layers are turned to [in, out], as MatMul takes them."""
    permuted = {"self_attn.q_proj": shape.heads, "self_attn.k_proj": shape.kv_heads}
    found = [Weight(EMBEDDING, file.tensors["token_embd.weight"])]
    for i in range(shape.layers):
        for name, stored in LAYER.items():
            tensor = file.tensors[f"blk.{i}.{stored}.weight"]
            turned = len(tensor.shape) == 2
            found.append(Weight(f"model.layers.{i}.{name}.weight", tensor, turned, permuted.get(name, 0)))
    return [*found, Weight(NORM, file.tensors["output_norm.weight"])]
