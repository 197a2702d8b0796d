"""From the operations of a trace to the task template: which engine does what, and where each tile lies.

A tile has a home in memory (a loaded buffer, an on-chip array, a product's destination) or lives in a register of the
open SHAVE fragment. The fragment stays open as long as possible; it is closed, and what lives on is written to buffers,
when another engine needs a value from it or touches memory that it reads or writes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from npuc.tasks import CallOp, CopyOp, FillOp, GatherOp, MmaOp, StepValue, TaskOp
from npuc.tile.affine import Affine, Condition
from npuc.tile.errors import KernelError, Loc
from npuc.tile.fragment import Fragment
from npuc.tile.liveness import Uses, live_operations
from npuc.tile.moves import Deferred, dma_converts, merge_transfer
from npuc.tile.template import DPU, IN, OUT, SHAVE, LocalBuffer, TaskTemplate, Template
from npuc.tile.trace import ClassTrace, Fill, Gather, Load, Memory, Mma, Scalar, Store, Value, Vector, touched
from npuc.tile.types import DType, dense_stride
from npuc.tile.views import View
from npurt.abi.bytecode import Op
