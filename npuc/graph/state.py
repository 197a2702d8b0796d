"""State: what a graph keeps from one run to the next, and the door through which it leaves the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class StateInfo:
    """One variable of a model, whichever way the file writes it down.

    id: exact name, unique in the model. dtype: TensorProto element type. shape: declared extents, -1 where it grows or the file leaves it open.
    growing_axis: the axis that grows by the rows of each run, or None. initial: value before the first run, None for zeros (0 rows along a
    growing axis). input, output: graph input `state.<id>` and graph output `next.<id>` of the pure model, None where never read
    or never written. form: how the file said it. nodes: names of the nodes that said it, in graph order.
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
