"""The canonical form of a mixture of experts, and its formula in float64.

y[t] = sum over j of weights[t, j] * expert(indices[t, j])(x[t])
expert(e)(x) = act(x gate[e]' + gate_bias[e], x up[e]' + up_bias[e]) down[e]' + down_bias[e]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np

KINDS = ("silu", "gelu", "gelu_tanh", "relu", "identity")
"""Names of the functions, by their number in the operator's attribute `kind`."""

_erf = np.vectorize(erf, otypes=[np.float64])
_TANH_FACTOR = np.sqrt(2.0 / np.pi)


@dataclass(frozen=True)
class Activation:
    """act(gate, up) = f(gate) * (up + beta), or f(gate) alone where there is no up.

    kind: f, of KINDS; silu is g * sigmoid(alpha * g). limit: where above 0, gate is at most `limit` and up between
    -limit and limit before anything else.
    """

    kind: str
    alpha: float = 1.0
    limit: float = 0.0
    beta: float = 0.0

    def __call__(self, gate: np.ndarray, up: np.ndarray | None) -> np.ndarray:
        g = np.minimum(gate, self.limit) if self.limit else gate
        result: np.ndarray = _FUNCTIONS[self.kind](g, self.alpha)
        if up is None:
            return result
        u = np.clip(up, -self.limit, self.limit) if self.limit else up
        return np.asarray(result * (u + self.beta))


_FUNCTIONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "silu": lambda g, alpha: g / (1.0 + np.exp(-alpha * g)),
    "gelu": lambda g, _: g * 0.5 * (1.0 + _erf(g / np.sqrt(2.0))),
    "gelu_tanh": lambda g, _: g * 0.5 * (1.0 + np.tanh(_TANH_FACTOR * (g + 0.044715 * g**3))),
    "relu": lambda g, _: np.maximum(g, 0.0),
    "identity": lambda g, _: g,
}


@dataclass(frozen=True)
class Stack:
    """Parameters of all experts, [E, ...]; one(e) makes those of one, so that never all of them need be in memory."""

    shape: tuple[int, ...]
    one: Callable[[int], np.ndarray]

    @classmethod
    def of(cls, shape: tuple[int, ...], whole: Callable[[], np.ndarray]) -> Stack:
        """A stack that one array holds, of this shape or of another with the same elements."""
        return cls(shape, lambda e: whole().reshape(shape)[e])

    def part(self, chosen: slice) -> Stack:
        """Some of the second axis."""
        count = len(range(*chosen.indices(self.shape[1])))
        return Stack((self.shape[0], count, *self.shape[2:]), lambda e: self.one(e)[chosen])

    def array(self, dtype: np.dtype[Any]) -> np.ndarray:
        """All of it, in C order."""
        whole = np.empty(self.shape, dtype)
        for e in range(self.shape[0]):
            whole[e] = self.one(e)
        return whole


@dataclass(frozen=True)
class Experts:
    """gate, up [E, F, K]; down [E, N, F]; biases [E, F] and [E, N]. What an expert has not is None."""

    gate: Stack
    up: Stack | None
    down: Stack
    gate_bias: Stack | None = None
    up_bias: Stack | None = None
    down_bias: Stack | None = None

    @property
    def count(self) -> int:
        return self.gate.shape[0]


def mixture(
    x: np.ndarray, indices: np.ndarray, weights: np.ndarray, experts: Experts, activation: Activation
) -> np.ndarray:
    """The formula: x [T, K], indices and weights [T, k] give [T, N], in float64."""
    stacks = (experts.gate, experts.up, experts.down, experts.gate_bias, experts.up_bias, experts.down_bias)
    total = np.zeros((len(x), experts.down.shape[1]))
    for e in np.unique(indices).tolist():
        rows, places = np.nonzero(indices == e)
        parts = [None if stack is None else np.asarray(stack.one(e), np.float64) for stack in stacks]
        gate, up, down, gate_bias, up_bias, down_bias = parts
        assert gate is not None and down is not None
        first = x[rows] @ gate.T + (0.0 if gate_bias is None else gate_bias)
        second = None if up is None else x[rows] @ up.T + (0.0 if up_bias is None else up_bias)
        with np.errstate(over="ignore"):
            hidden = activation(first, second)
        result = hidden @ down.T + (0.0 if down_bias is None else down_bias)
        np.add.at(total, rows, weights[rows, places][:, None] * result)
    return total
