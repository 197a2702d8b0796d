"""Proofs that hold for equal layers: what two regions share where they differ in nothing but their weights."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice

import numpy as np
import onnx_ir as ir

from npuc.graph.experts.find import Candidate
from npuc.graph.experts.form import Activation, Experts
from npuc.graph.experts.prove import forms_of, prove
from npuc.graph.experts.sizes import Sizes
from npuc.graph.nodes import attributes


class Known:
    """Proofs so far: which form of those that a region may have is the one."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int | str] = {}

    def prove(self, candidate: Candidate, sizes: Sizes) -> tuple[Experts, Activation] | str:
        """As `npuc.graph.experts.prove.prove`, once for equal layers."""
        key = signature(candidate, sizes)
        if key not in self._numbers:
            self._numbers[key] = prove(candidate, sizes)
        number = self._numbers[key]
        if isinstance(number, str):
            return number
        return next(islice(forms_of(candidate, sizes), number, None))


def signature(candidate: Candidate, sizes: Sizes) -> Hashable:
    """Equal for regions that compute the same function of their sources and of their float parameters.

    Of a float constant its shape counts; its content, too, where all its numbers are one (a limit, a zero to add to).
    """
    region = candidate.region
    index: dict[ir.Value, int] = {value: at for at, value in enumerate(region.sources)}
    parts: list[Hashable] = [sizes.shape(value) for value in region.sources[:3]]
    for value in region.sources[3:]:
        content = sizes.content(value)
        parts.append(None if content is None else (content.shape, content.tobytes()))
    for node in region.nodes:
        operands = tuple(None if v is None else index.get(v, _constant(v)) for v in node.inputs)
        attrs = tuple(
            (name, value.tobytes() if isinstance(value, np.ndarray) else str(value))
            for name, value in sorted(attributes(node).items(), key=lambda item: item[0])
        )
        parts.append((node.domain, node.op_type, operands, attrs))
        for output in node.outputs:
            index[output] = len(index)
    return (*parts, index[region.result])


def _constant(value: ir.Value) -> Hashable:
    tensor = value.const_value
    if tensor is None:
        return value.name
    shape = tuple(int(n) for n in tensor.shape.numpy())
    if tensor.dtype.is_floating_point() and tensor.size > _SMALL:
        return tensor.dtype.name, shape
    array = tensor.numpy()
    if array.dtype.kind not in "iub" and array.size and (array != array.reshape(-1)[0]).any():
        return tensor.dtype.name, shape
    return tensor.dtype.name, shape, array.tobytes()


_SMALL = 4096  # elements, up to which a constant is looked at
