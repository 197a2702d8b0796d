"""From the products of a region to the forms that its experts may have: layouts of the weights and activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npuc.graph.experts.form import Activation, Experts, Stack
from npuc.graph.experts.products import Parameters, Product, products
from npuc.graph.nodes import is_op

Columns = tuple[Stack, Stack | None]
"""Weights [E, N, K] and biases [E, N] of one layer of every expert."""


def forms(parameters: Parameters, width: int) -> Iterator[tuple[Experts, Activation]]:
    """What the region may be, the likeliest first. width: of the input."""
    found = products(parameters)
    first, second = ([p for p in found if p.level == level] for level in (0, 1))
    if not first or not second or any(p.level > 1 for p in found):
        return
    for down in _layers(parameters, found, second, None):
        depth = down[0][0].shape[2]
        for layers in _layers(parameters, found, first, second):
            if any(weight.shape[2] != width or weight.shape[0] != down[0][0].shape[0] for weight, _ in layers):
                continue
            for gate, up in _gates(layers, depth):
                experts = Experts(
                    gate[0], None if up is None else up[0], down[0][0],
                    gate[1], None if up is None else up[1], down[0][1],
                )  # fmt: skip
                for activation in _activations(parameters, up is not None):
                    yield experts, activation


def _layers(
    parameters: Parameters, found: Sequence[Product], level: Sequence[Product], after: Sequence[Product] | None
) -> Iterator[list[Columns]]:
    """The products of a level as one layer, or two side by side, over all experts. after: the next level's."""
    ranks = {len(parameters.shape(p.weight)) for p in level}
    if ranks == {3}:
        for turned in {p.turned for p in level} if not any(p.picked for p in level) else (False, True):
            yield [_stacked(parameters, p, turned) for p in level]
        return
    if ranks != {2}:
        return
    if after is None:
        yield [_joined(parameters, level)]
        return
    count = len(after)
    if len(level) == count:
        yield [_joined(parameters, _own(found, level, after, 1) or level)]
    elif len(level) == 2 * count:
        own = _own(found, level, after, 2)
        orders = [own] if own else [list(level), [p for i in range(count) for p in (level[i], level[i + count])]]
        for order in orders:
            yield [_joined(parameters, order[side::2]) for side in (0, 1)]


def _own(
    found: Sequence[Product], level: Sequence[Product], after: Sequence[Product], each: int
) -> list[Product] | None:
    """The products of a level by the one of the next that needs them, where each needs but its own."""
    order = []
    for product in after:
        mine = [found[number] for number in sorted(product.before) if found[number].level == level[0].level]
        if len(mine) != each:
            return None
        order += mine
    return order


def _stacked(parameters: Parameters, product: Product, turned: bool) -> Columns:
    """A product with the matrices of all experts in one array."""
    shape = parameters.shape(product.weight)

    def one(e: int) -> np.ndarray:
        matrix: np.ndarray = parameters.array(product.weight)[e]
        return matrix if turned else matrix.T

    weight = Stack(shape if turned else (shape[0], shape[2], shape[1]), one)
    return weight, _stacked_bias(parameters, product, weight.shape[:2])


def _stacked_bias(parameters: Parameters, product: Product, shape: tuple[int, ...]) -> Stack | None:
    """A bias for every expert, or one that all share."""
    bias = product.bias
    if bias is None:
        return None
    shared = int(np.prod(parameters.shape(bias))) != int(np.prod(shape))
    if shared:
        return Stack(shape, lambda e: np.broadcast_to(parameters.array(bias).reshape(-1), shape[1:]))
    return Stack.of(shape, lambda: parameters.array(bias))


def _joined(parameters: Parameters, level: Sequence[Product]) -> Columns:
    """Products with one matrix each as a layer of all experts, in this order."""
    example = parameters.shape(level[0].weight)
    n, k = example if level[0].turned else example[::-1]

    def matrix(e: int) -> np.ndarray:
        array = parameters.array(level[e].weight)
        return array if level[e].turned else array.T

    weight = Stack((len(level), n, k), matrix)
    biases = [p.bias for p in level]
    if all(bias is None for bias in biases):
        return weight, None
    if len(set(biases)) == 1:
        return weight, _stacked_bias(parameters, level[0], weight.shape[:2])

    def vector(e: int) -> np.ndarray:
        bias = biases[e]
        return np.zeros(n) if bias is None else parameters.array(bias).reshape(n)

    return weight, Stack(weight.shape[:2], vector)


def _gates(layers: Sequence[Columns], depth: int) -> Iterator[tuple[Columns, Columns | None]]:
    """Which of the columns gate and which are gated. depth: columns of the hidden layer."""
    if len(layers) == 2:
        if all(weight.shape[1] == depth for weight, _ in layers):
            yield layers[0], layers[1]
            yield layers[1], layers[0]
        return
    if len(layers) != 1:
        return
    ((weight, bias),) = layers
    if weight.shape[1] == depth:
        yield (weight, bias), None
    elif weight.shape[1] == 2 * depth:
        halves, turns = (slice(0, depth), slice(depth, None)), (slice(0, None, 2), slice(1, None, 2))
        for a, b in (halves, turns, halves[::-1], turns[::-1]):
            parts = [(weight.part(chosen), None if bias is None else bias.part(chosen)) for chosen in (a, b)]
            yield parts[0], parts[1]


def _activations(parameters: Parameters, gated: bool) -> Iterator[Activation]:
    """Activations that the region's operators and constants allow."""
    region = parameters.region
    has = {node.op_type for node in region.nodes}
    numbers = parameters.numbers()
    kinds = []
    if has & {"Sigmoid", "HardSwish", "Swish"}:
        kinds += [("silu", alpha) for alpha in (1.0, *(n for n in numbers if n > 0 and n != 1.0))]
    if any(is_op(node, "Gelu") for node in region.nodes) or "Erf" in has:
        kinds.append(("gelu", 1.0))
    if "Tanh" in has or any(is_op(node, "Gelu") for node in region.nodes):
        kinds.append(("gelu_tanh", 1.0))
    if "Relu" in has:
        kinds.append(("relu", 1.0))
    kinds = kinds or [("identity", 1.0)]
    clips = has & {"Clip", "Min", "Max"}
    limits = [*(n for n in numbers if n > 0 and clips), 0.0]
    betas = [0.0, *(n for n in numbers if gated and n != 0.0)]
    for kind, alpha in kinds:
        for limit in limits:
            for beta in betas:
                yield Activation(kind, alpha, limit, beta)
