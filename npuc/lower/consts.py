"""Constants of the blob: packed on demand, one buffer for equal content."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from npuc.graph.nodes import WIDE
from npuc.lower.storage import Storage
from npuc.lower.views import contiguous_strides
from npuc.tasks import Buffer, Const, Region, Role
from npurt.abi.dtypes import DType


class ConstPool:
    """The CONST buffers of a whole model, shared by its entries.

    A key is the digest of the source bytes and the name of the packing, so that names, which entries may use for
    different folded values, do not matter.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._buffers: dict[str, Buffer] = {}
        self._digests: dict[int, tuple[ir.TensorProtocol, str]] = {}  # keeps the tensor alive, so its id stays its own

    def digest(self, tensor: ir.TensorProtocol) -> str:
        known = self._digests.get(id(tensor))
        if known is None:
            array = tensor.numpy()
            turned = array.flags.f_contiguous and not array.flags.c_contiguous  # a copy may be as large as all else
            flat = np.ascontiguousarray(array.T if turned else array)
            head = f"{tensor.dtype.name}{tuple(array.shape)}{'T' if turned else ''}".encode()
            digest = hashlib.sha256(head)
            digest.update(flat.reshape(-1).view(np.uint8).data)
            known = tensor, digest.hexdigest()[:32]
            self._digests[id(tensor)] = known
        return known[1]

    def region(self, key: str, dtype: DType, shape: tuple[int, ...], produce: Callable[[], np.ndarray]) -> Region:
        """A contiguous region over the constant `key`."""
        buffer = self._buffers.get(key)
        if buffer is None:
            nbytes = math.prod(shape) * dtype.nbytes
            const = Const(key, dtype, shape, produce)
            buffer = Buffer(f"const.{len(self._buffers)}", "ddr", nbytes, Role.CONST, const=const)
            self._buffers[key] = buffer
        return Region(buffer, 0, dtype, shape, contiguous_strides(shape, dtype.nbytes))

    def plain(self, tensor: ir.TensorProtocol, dtype: DType | None = None) -> Region:
        """The tensor as it is, in `dtype`, by default its storage type. UnsupportedType where the device cannot hold
        it."""
        dtype = dtype or (DType.F32 if WIDE in tensor.metadata_props else self.storage.of(tensor.dtype))
        shape = tuple(int(n) for n in tensor.shape.numpy())
        key = f"{self.digest(tensor)}.{dtype.label}"
        if dtype is DType.I32:  # small, and refused here, where the reader of the constant is known
            packed = self.storage.pack(tensor.numpy(), dtype)
            return self.region(key, dtype, shape, lambda: packed)
        return self.region(key, dtype, shape, lambda: self.storage.pack(tensor.numpy(), dtype))

    def weights(self, tensor: ir.TensorProtocol, transposed: bool, dtype: DType | None = None) -> Region:
        """A weight matrix as [N, full K], the rows a matrix engine wants. transposed: the tensor is [N, K] already.

        dtype: None for the storage type."""
        if transposed:
            return self.plain(tensor, dtype)
        dtype = dtype or self.storage.of(tensor.dtype)
        k, n = (int(extent) for extent in tensor.shape.numpy())
        key = f"{self.digest(tensor)}.nk.{dtype.label}"
        return self.region(key, dtype, (n, k), lambda: self.storage.pack(tensor.numpy().T, dtype))

    def table(self, bias: ir.TensorProtocol, factor: float = 1.0) -> Region:
        """The DPU's per-channel table [N, 2] of (scale, bias) f32 for a bias vector; factor scales the bias."""
        count = math.prod(int(n) for n in bias.shape.numpy())

        def produce() -> np.ndarray:
            rows = np.ones((count, 2), "<f4")
            rows[:, 1] = bias.numpy().astype(np.float32).reshape(-1) * np.float32(factor)
            return rows

        return self.region(f"{self.digest(bias)}.table.{factor!r}", DType.F32, (count, 2), produce)

    def array(self, array: np.ndarray, dtype: DType) -> Region:
        """A constant that lowering itself makes, for example gather indices."""
        packed = self.storage.pack(array, dtype)
        key = hashlib.sha256(f"{dtype.label}{packed.shape}".encode() + packed.tobytes()).hexdigest()[:32]
        return self.region(f"{key}.made", dtype, packed.shape, lambda: packed)
