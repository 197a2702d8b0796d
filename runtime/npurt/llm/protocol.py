"""What a session needs of a device and of an image. A test's fake device satisfies the same protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Tensors = Mapping[str, NDArray[np.generic]]


class RunsEntries(Protocol):
    """A device with the entries of one image.

    run: one entry on inputs by name; returns the outputs by name. n_past: valid cache rows before the run. n_new: valid
    rows of this run's input, all of them where it is None. The rows' keys and values go into the cache in place.
    reset: all states back to their initial values.
    """

    def run(self, entry: str, inputs: Tensors, *, n_past: int = 0, n_new: int | None = None) -> Tensors: ...

    def reset(self) -> None: ...


class HoldsModel(Protocol):
    """An image: `meta` is the blob's metadata object, `assets` the files for the session, by file name."""

    @property
    def meta(self) -> Mapping[str, Any]: ...

    @property
    def assets(self) -> Mapping[str, bytes]: ...
