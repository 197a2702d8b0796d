"""What lowering knows of one entry while it walks the graph: where each value lies, and the kernel calls so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir

from npuc.lower.consts import ConstPool
from npuc.lower.errors import LoweringRefused, describe
from npuc.lower.packed import Packed, packed_weight, picks
from npuc.lower.storage import Storage
from npuc.lower.views import contiguous_strides, parts, reshape
from npuc.lower.ways import Way, way
from npuc.tasks import Buffer, Region
from npurt.abi.dtypes import DType
from npurt.target.model import Target


@dataclass(frozen=True)
class KernelCall:
    """One kernel over whole arrays; None where an optional array is absent.

    params: its fixed keyword parameters; tile sizes are chosen later, by capacity. way: of a product with codes.
    """

    kernel: str
    arrays: tuple[Region | None, ...]
    params: Mapping[str, Any]
    node: str
    way: Way | None = None


@dataclass
class Lowering:
    """State of one walk.

    at: the region of every value computed or bound so far.
    ids_checked: token ids are valid by contract (LLM entries), so that a gather needs no wrap of negatives.
    ddr_values: names of values that do not fit on the chip and live in DDR.
    precise: float values that are float32 whatever the precision. bound: library kernels that the caller's replace.
    slot_tables: which slots of a cache of so many are valid in this step, made once for all layers.
    outputs: OUTPUT buffers by graph output name; direct: values that kernels write straight into them.
    slots: where the new rows of the run go in a ring, by the ring's number of slots.
    """

    entry: str
    storage: Storage
    consts: ConstPool
    ddr_values: frozenset[str]
    on_chip: str
    ids_checked: bool
    target: Target
    precise: frozenset[ir.Value] = frozenset()
    bound: frozenset[str] = frozenset()
    at: dict[ir.Value, Region] = field(default_factory=dict)
    calls: list[KernelCall] = field(default_factory=list)
    direct: dict[ir.Value, Buffer] = field(default_factory=dict)
    slots: dict[int, Region] = field(default_factory=dict)
    made: int = 0
    slot_tables: dict[int, Region] = field(default_factory=dict)

    def region(self, value: ir.Value | None) -> Region:
        """Where a value lies; constants are placed in the pool at first use."""
        assert value is not None
        found = self.at.get(value)
        if found is None:
            assert value.const_value is not None, f"{value.name} is read before it is made"
            found = self.at[value] = self.consts.plain(value.const_value)
        return found

    def packed(self, value: ir.Value | None) -> Packed | None:
        """The weight that stays codes behind a value, None for any other value."""
        return packed_weight(value, self.consts, self.target)

    def new(self, value: ir.Value, shape: Sequence[int] | None = None, dtype: DType | None = None,
            order: Sequence[int] | None = None) -> Region:  # fmt: skip
        """Room for a value: in its output buffer, on the chip, or in DDR scratch.

        order: the axes from the outermost in memory to the innermost; row-major where not given.
        """
        shape = tuple(shape) if shape is not None else static_shape(value)
        target = self.direct.get(value)
        if target is not None:
            dtype = output_dtype(self.storage, value)
            return Region(target, 0, dtype, shape, contiguous_strides(shape, dtype.nbytes))
        dtype = dtype or self.dtype(value)
        self.made += 1
        return self._local(str(value.name), shape, dtype, order)

    def dtype(self, value: ir.Value) -> DType:
        """The element type of a value in device memory."""
        return DType.F32 if value in self.precise else self.storage.of(value_type(value))

    def temporary(self, label: str, shape: Sequence[int], dtype: DType) -> Region:
        """Room for something the graph has no name for."""
        self.made += 1
        return self._local(f"{label}~{self.made}", tuple(shape), dtype, None)

    def _local(self, name: str, shape: tuple[int, ...], dtype: DType, order: Sequence[int] | None) -> Region:
        order = list(order) if order is not None else list(range(len(shape)))
        packed = contiguous_strides([shape[axis] for axis in order], dtype.nbytes)
        stride = [0] * len(shape)
        for axis, step in zip(order, packed, strict=True):
            stride[axis] = step
        memory = "ddr" if name in self.ddr_values else self.on_chip
        buffer = Buffer(name, memory, math.prod(shape) * dtype.nbytes)
        return Region(buffer, 0, dtype, shape, tuple(stride))

    def call(self, kernel: str, arrays: Sequence[Region | None], node: ir.Node, **params: Any) -> None:
        self.calls.append(KernelCall(kernel, tuple(arrays), params, str(node.name)))

    def copy(self, node: ir.Node, source: Region, target: Region) -> None:
        """Copies between two regions of one shape, under at most four axes each."""
        if source.elements:
            for pair in parts([source, target]):
                self.call("copy", pair, node)

    def call_codes(
        self, kernel: str, x: Region, weights: Sequence[Packed], out: Region, extra: Sequence[Region], node: ir.Node,
        **params: Any,
    ) -> None:  # fmt: skip
        """A product of x [m, k] with packed weights of one form, in the cheapest way."""
        row = weights[0].row
        chosen = way(row, x.shape[0], weights[0].channels, self.storage.floats, self.target)
        ones = None if chosen.widen else picks(row, self.consts)
        given = (ones, *extra) if ones is not None or extra else ()
        arrays = (x, *(weight.region for weight in weights), out, *given)
        self.calls.append(
            KernelCall(kernel, arrays, {"row": row, "widen": chosen.widen, **params}, str(node.name), chosen)
        )

    def copied(self, region: Region, node: ir.Node, shape: Sequence[int] | None = None) -> Region:
        """A row-major copy on the chip (or in DDR when its name says so), optionally under another shape."""
        fresh = self.temporary(f"{node.name}.copy", region.shape, region.dtype)
        self.copy(node, region, fresh)
        if shape is None:
            return fresh
        shaped = reshape(fresh, shape)
        assert shaped is not None
        return shaped

    def shaped(self, region: Region, shape: Sequence[int], node: ir.Node) -> Region:
        """A view under another shape, or a copy where the strides cannot say it."""
        view = reshape(region, shape)
        return view if view is not None else self.copied(region, node, shape)


def static_shape(value: ir.Value) -> tuple[int, ...]:
    assert value.shape is not None, f"{value.name} has no shape"
    return tuple(int(n) for n in value.shape.numpy())


def tensor_shape(tensor: ir.TensorProtocol) -> tuple[int, ...]:
    """A constant's shape: always static."""
    return tuple(int(n) for n in tensor.shape.numpy())


def value_type(value: ir.Value) -> ir.DataType:
    assert value.dtype is not None, f"{value.name} has no type"
    return value.dtype


def output_dtype(storage: Storage, value: ir.Value) -> DType:
    """Graph outputs keep float32 whatever the precision: the last rounding is the caller's."""
    dtype = storage.of(value_type(value))
    return DType.F32 if dtype.is_float else dtype


def constant(value: ir.Value | None) -> ir.TensorProtocol | None:
    return None if value is None else value.const_value


def ints(node: ir.Node, index: int) -> list[int] | None:
    """The constant integer operand `index` as a list; None if absent. Not constant: the node is refused."""
    if index >= len(node.inputs) or node.inputs[index] is None:
        return None
    tensor = constant(node.inputs[index])
    if tensor is None:
        raise LoweringRefused([f"{describe(node)}: operand {index} must be a constant once all dims are fixed"])
    return [int(n) for n in tensor.numpy().reshape(-1)]


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    found = node.attributes.get(name)
    return default if found is None else found.value
