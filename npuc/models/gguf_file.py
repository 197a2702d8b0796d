"""Reading a GGUF file with the package gguf: metadata as plain values, tensors as mapped bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuc.models.errors import PullError

READABLE = ("F32", "F16", "Q4_1", "Q8_0")
"""Stored types whose every value is a number of f16 and whole numbers, rounded at most once in f32."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file. kind: one of `READABLE`. shape: [out, in] or [n], elements. rows: the stored bytes or
    numbers, one row each along axis 0; mapped, not copied."""

    name: str
    kind: str
    shape: tuple[int, ...]
    rows: NDArray[Any]

    def f32(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """The values of these stored rows. Q4_1: d * q + m, Q8_0: d * q, with f16 d and m, blocks of 32."""
        from gguf import GGMLQuantizationType, dequantize

        return np.asarray(dequantize(rows, GGMLQuantizationType[self.kind]), np.float32)


@dataclass(frozen=True)
class GgufFile:
    """metadata: by key, lists and numbers and texts. tensors: by name."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


def need_gguf() -> None:
    """PullError where the package gguf is not installed; asked before anything is fetched."""
    if find_spec("gguf") is None:
        raise PullError("reading the model needs the package gguf: pip install 'npuc[models]'")


def read_gguf(path: Path) -> GgufFile:
    """Reads a file whose digest is known to be right. PullError where the package gguf is missing."""
    need_gguf()
    from gguf import GGUFReader

    reader = GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {}
    for tensor in reader.tensors:
        shape = tuple(int(size) for size in reversed(tensor.shape.tolist()))
        tensors[tensor.name] = StoredTensor(tensor.name, tensor.tensor_type.name, shape, tensor.data)
    return GgufFile(metadata, tensors)


def check_tensors(file: GgufFile, expected: Mapping[str, tuple[int, ...]]) -> None:
    """PullError unless the file has exactly these tensors, in these shapes, in stored types that are readable."""
    missing = [name for name in expected if name not in file.tensors]
    unknown = [name for name in file.tensors if name not in expected]
    if missing:
        raise PullError(f"the GGUF file has no tensor {missing[0]} ({len(missing)} missing)")
    if unknown:
        raise PullError(f"the GGUF file has a tensor {unknown[0]}, which the recipe does not know")
    for name, shape in expected.items():
        found = file.tensors[name]
        if found.shape != shape:
            raise PullError(
                f"the tensor {name} is {list(found.shape)}, and the sizes of the model ask for {list(shape)}"
            )
        if found.kind not in READABLE:
            raise PullError(f"the tensor {name} is stored as {found.kind}: only {', '.join(READABLE)} are read")
