"""Fills a table of records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def fill(dtype: np.dtype, rows: Sequence[Sequence[Any]]) -> np.ndarray:
    """A table [rows] of a structured dtype, one tuple per record in the order of its fields, column by column.

    Padding bytes are zero. `np.array(rows, dtype)` leaves them undefined, so that files would differ from run to run.
    """
    table = np.zeros(len(rows), dtype)
    if rows:
        assert dtype.names is not None
        for name, column in zip(dtype.names, zip(*rows, strict=True), strict=True):
            table[name] = column
    return table
