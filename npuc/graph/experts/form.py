"""The canonical form of a mixture of experts, and its formula in float64.

y[t] = sum over j of weights[t, j] * expert(indices[t, j])(x[t])
expert(e)(x) = act(x gate[e]' + gate_bias[e], x up[e]' + up_bias[e]) down[e]' + down_bias[e]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf

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
    """Parameters of all experts as one array that is made when it is asked for. shape: [E, ...]."""

    shape: tuple[int, ...]
    make: Callable[[], np.ndarray]

    def part(self, chosen: slice) -> Stack:
        """Some of the second axis."""
        count = len(range(*chosen.indices(self.shape[1])))
        return Stack((self.shape[0], count, *self.shape[2:]), lambda: self.make()[:, chosen])


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
    arrays = [
        None if stack is None else stack.make().astype(np.float64)
        for stack in (experts.gate, experts.up, experts.down, experts.gate_bias, experts.up_bias, experts.down_bias)
    ]
    gate, up, down, gate_bias, up_bias, down_bias = arrays
    assert gate is not None and down is not None
    total = np.zeros((len(x), down.shape[1]))
    for e in np.unique(indices):
        rows, places = np.nonzero(indices == e)
        first = x[rows] @ gate[e].T + (0.0 if gate_bias is None else gate_bias[e])
        second = None if up is None else x[rows] @ up[e].T + (0.0 if up_bias is None else up_bias[e])
        with np.errstate(over="ignore"):
            hidden = activation(first, second)
        result = hidden @ down[e].T + (0.0 if down_bias is None else down_bias[e])
        np.add.at(total, rows, weights[rows, places][:, None] * result)
    return total
