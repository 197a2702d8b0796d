"""Executes SHAVE records: the kernel's program on the memory of its arguments."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npurt.abi.records import NO_BASE
from npurt.exec.memory import Bases
from npurt.image import Tables
from npurt.shave.machine import Prepared


def prepare_shave(record: np.void, tables: Tables, prepared: list[Prepared], bases: Bases) -> Callable[[], None]:
    """A call that runs one record of npurt.abi.records.SHAVE. prepared: of each kernel row."""
    kernel, first, count = int(record["kernel"]), int(record["arg_first"]), int(record["arg_count"])
    pointers = []
    for base, scalar, offset in tables.shave_args[first : first + count].tolist():
        if base == NO_BASE:
            pointers.append((np.array([scalar], "<i4").view(np.uint8), 0))
        else:
            pointers.append(bases(base, offset))
    return prepared[kernel].bind(pointers)
