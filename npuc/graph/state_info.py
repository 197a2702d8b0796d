"""What is known of a state once it has left the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class StateInfo:
    """One state of a model, whichever way the file writes it down.

    id: exact name, unique in the model. dtype: TensorProto element type. shape: extents, -1 where it grows or the
    file leaves the extent open. growing_axis: the axis that takes new rows in each run, or None. initial: the value
    before the first run, None for zeros (without a row along a growing axis). input, output: names in the pure model,
    `state.<id>` and `next.<id>`; None where it is never read, or never written. form: how the file says it. nodes:
    names of the nodes that say it, in graph order; for a pair the node that makes the output. aliases: names in the
    file of the values that are the state before and after a run. max_rows: the bound that the user gave for a growing
    state, or None.
    """

    id: str
    dtype: int
    shape: tuple[int, ...]
    growing_axis: int | None
    initial: np.ndarray | None
    input: str | None
    output: str | None
    form: Literal["pair", "variable"]
    nodes: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    max_rows: int | None = None
