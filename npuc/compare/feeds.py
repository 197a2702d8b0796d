"""Inputs for a comparison that are made where none are given: always the same, and such as the graph can take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from npuc.compare.errors import CompareError
from npuc.graph.entry import LlmInfo, PortSpec

SEED = 0
PAST_CHUNK = 3
"""Tokens of the default prompt behind its first chunk: the second chunk has a past and, unless it is short, padding."""


def seeded_prompt(llm: LlmInfo, tokens: int) -> list[int]:
    """Ids of a prompt longer than one chunk, as far as the limits allow, with room for `tokens` more."""
    room = min(llm.max_prompt_len, llm.capacities[-1] - tokens)
    if room < 1:
        raise CompareError(f"--tokens {tokens} leaves no room for a prompt in {llm.capacities[-1]} cache places")
    length = min(llm.chunk + PAST_CHUNK, room)
    return [int(i) for i in np.random.default_rng(SEED).integers(0, llm.vocab, length)]


def check_prompt(llm: LlmInfo, prompt: Sequence[int], tokens: int) -> None:
    """CompareError unless a prompt and `tokens` more fit the model."""
    if not prompt:
        raise CompareError("the prompt is empty: it needs at least one token")
    wrong = next((i for i in prompt if not 0 <= i < llm.vocab), None)
    if wrong is not None:
        raise CompareError(f"the prompt has the id {wrong}: ids of this model are 0 to {llm.vocab - 1}")
    if len(prompt) > llm.max_prompt_len:
        raise CompareError(
            f"the prompt has {len(prompt)} tokens and the limit is {llm.max_prompt_len}: give --max-prompt-len "
            f"{len(prompt)} or more"
        )
    if len(prompt) + tokens > llm.capacities[-1]:
        raise CompareError(
            f"{len(prompt)} prompt tokens and --tokens {tokens} need {len(prompt) + tokens} cache places, there are "
            f"{llm.capacities[-1]}: give larger --capacities or fewer tokens"
        )


def seeded_inputs(graph: ir.Graph, ports: Sequence[PortSpec]) -> dict[str, np.ndarray]:
    """Floats of a normal distribution; integers: ones for masks, 0, 1, 2, ... for positions, else 0 to the end of the
    table that they index, or 0 and 1."""
    random = np.random.default_rng(SEED)
    values = {value.name: value for value in graph.inputs}
    return {port.name: _seeded(random, values[port.name], port) for port in ports}


def _seeded(random: np.random.Generator, value: ir.Value, port: PortSpec) -> np.ndarray:
    dtype, name = ir.DataType(port.onnx_dtype).numpy(), port.name.lower()
    if np.dtype(dtype).kind not in "iub":
        return np.asarray(random.normal(0, 1, port.shape), dtype)
    if "mask" in name:
        return np.ones(port.shape, dtype)
    if "position" in name:
        return np.broadcast_to(np.arange(port.shape[-1] if port.shape else 1, dtype=dtype), port.shape).copy()
    return random.integers(0, _index_limit(value), port.shape).astype(dtype)


def _index_limit(value: ir.Value) -> int:
    """The extent of the smallest table that a value indexes, 2 where it indexes none."""
    limits = []
    for node, place in value.uses():
        table = node.inputs[0]
        if node.op_type == "Gather" and place == 1 and table is not None and table.shape is not None:
            axis = node.attributes.get_int("axis", 0)
            extent = table.shape[axis]
            if isinstance(extent, int):
                limits.append(extent)
    return min(limits, default=2)


def check_inputs(ports: Sequence[PortSpec], given: Mapping[str, np.ndarray]) -> None:
    """CompareError unless the given tensors are those of the graph, in its shapes."""
    names = [port.name for port in ports]
    for name in names:
        if name not in given:
            raise CompareError(f"input {name!r} is missing; the inputs are {', '.join(names)}")
    for name in given:
        if name not in names:
            raise CompareError(f"there is no input {name!r}; the inputs are {', '.join(names) or 'none'}")
    for port in ports:
        if given[port.name].shape != port.shape:
            raise CompareError(
                f"input {port.name!r} has the shape {list(given[port.name].shape)}, {list(port.shape)} is due"
            )
