"""The weights that a build has dequantised so far: one constant for equal operands, and what the report says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.facts import Types
from npuc.frontend.infer import infer
from npuc.graph.expand.place import Place
from npuc.graph.quantised import packed
from npuc.graph.quantised.affine import Affine
from npuc.graph.quantised.known import Known
from npuc.graph.quantised.packed import PackedForm
from npuc.graph.quantised.requantise import dense as dense_of
from npuc.graph.quantised.requantise import per_channel


@dataclass(frozen=True)
class Stored:
    """How a weight is stored. affine: reads the file's tensors and gives the weight as [outer, axis, inner].

    shape: of the weight. turned: whether the graph reads the transpose, [K, N] of a weight stored as [N, K].
    """

    affine: Callable[[], Affine]
    shape: tuple[int, ...]
    dtype: ir.DataType
    turned: bool = False

    def array(self) -> np.ndarray:
        numbers = self.affine().numbers(self.dtype.numpy()).reshape(self.shape)
        return numbers.T if self.turned else numbers

    def tensor(self, name: str) -> ir.TensorProtocol:
        """A tensor that computes its numbers each time that they are read, and keeps none."""
        shape = ir.Shape(self.shape[::-1] if self.turned else self.shape)
        return ir.LazyTensor(
            lambda: ir.Tensor(self.array(), self.dtype, shape=shape), self.dtype, shape, cache=False, name=name
        )


@dataclass
class Weights:
    """model: that is rewritten. per_channel: quantise again what has scales for groups. made: the weights so far, by
    operands and form. held: operands of packed ones, whichever way they are turned.

    Numbers of what the report tells. kept, schemes: of packed and of dense ones, by how the file stores them; levels:
    of nodes that allow narrow activations, by accuracy_level; rounded: of values of the run that become codes; spans:
    of those with a scale that the run chooses; products: of those in whole numbers.
    """

    known: Known
    model: ir.Model
    per_channel: bool = False
    made: dict[Hashable, ir.Value] = field(default_factory=dict)
    held: dict[Hashable, list[ir.Value]] = field(default_factory=dict)
    kept: Counter[str] = field(default_factory=Counter)
    schemes: Counter[str] = field(default_factory=Counter)
    levels: Counter[int] = field(default_factory=Counter)
    rounded: int = 0
    products: int = 0
    spans: int = 0

    @cached_property
    def _types(self) -> Types:
        """What inference knows of the values of the file, asked for where an axis is counted from the front."""
        return infer(self.model, Problems())

    def rank(self, value: ir.Value) -> int | None:
        """Number of axes of a value of the file, None where it is not known."""
        found = self._types.dims(value)
        return None if found is None else len(found)

    def tensor(self, place: Place, index: int, what: str) -> ir.TensorProtocol | None:
        """The constant operand at an index, None where it is left out. Raises ModelRefused if it is no constant."""
        value = place.input(index)
        if value is None:
            return None
        found = self.known.tensor(value)
        if found is None:
            place.refuse(f"{what} {value.name!r} is no constant; only weights that the file holds are supported")
        return found

    def required(self, place: Place, index: int, what: str) -> ir.TensorProtocol:
        """The constant operand at an index, which must be there."""
        tensor = self.tensor(place, index, what)
        if tensor is None:
            place.refuse(f"its input {what} is missing")
        return tensor

    def weight(
        self, place: Place, source: ir.Value, operands: Sequence[ir.TensorProtocol | None], scheme: str, stored: Stored,
        form: PackedForm | str, turned: bool,
    ) -> ir.Value:  # fmt: skip
        """The weight of these operands, packed, or dense for the reason that is given instead of a form.

        turned: whether the graph reads it as [K, N], channels last.
        """
        if isinstance(form, str):
            return self.constant(place, source, operands, f"{scheme}: {form}" if form else scheme, stored)
        again = self.per_channel and form.groups > 1
        if again:
            form, scheme = per_channel(form), f"{scheme}, quantised again with one scale for each channel"
        shared = (*map(id, operands), form.bits, form.block, form.n, form.k)
        key = (*shared, stored.dtype, turned)
        if key not in self.made:
            if shared not in self.held:
                self.held[shared] = packed.operands(place, source.name or "weight", form)
                self.kept[scheme] += 1
            dense = dense_of(form, stored.dtype, turned) if again else stored.tensor(f"{source.name}~dequantised")
            self.made[key] = packed.numbers(place, self.held[shared], form, turned, dense)
        return self.made[key]

    def constant(
        self, place: Place, source: ir.Value, operands: Sequence[ir.TensorProtocol | None], scheme: str, stored: Stored
    ) -> ir.Value:
        """The dense weight of these operands: a node that asks for the same one gets the same value."""
        key = (*map(id, operands), scheme, stored.shape, stored.dtype, stored.turned)
        if key not in self.made:
            name = f"{source.name}~dequantised"
            self.made[key] = place.initializer(stored.tensor(name), name)
            self.schemes[scheme] += 1
        return self.made[key]

    def report(self) -> list[str]:
        """Lines for people: how the weights were stored, and what is not imitated."""
        lines = [f"{count} weight{'s' * (count > 1)} kept as codes: {scheme}" for scheme, count in self.kept.items()]
        lines += [
            f"{count} weight{'s' if count > 1 else ''} dequantised while compiling, stored as floats of the precision "
            f"in the blob: {scheme}"
            for scheme, count in self.schemes.items()
        ]
        lines += [
            f"accuracy_level {level} of {count} MatMulNBits is not imitated: their activations stay floats"
            for level, count in sorted(self.levels.items())
        ]
        if self.rounded:
            lines.append(f"{self.rounded} values of the run rounded to codes, in float32")
        if self.products:
            lines.append(f"{self.products} products of codes in whole numbers, whose weights stay as they are stored")
        if self.spans:
            lines.append(
                f"{self.spans} values quantised with a scale over all rows of a run (DynamicQuantizeLinear): an answer "
                "follows how a prompt is cut into chunks, by the meaning of the graph; padding does not change it"
            )
        return lines


def dims(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """A tensor's shape."""
    return tuple(int(extent) for extent in tensor.shape.numpy())
