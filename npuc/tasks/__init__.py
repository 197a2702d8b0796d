"""Tasks between lowering and emission: buffers, strided regions, and what each engine is told to do with them."""

from npuc.tasks.graph import (
    Buffer,
    CallOp,
    Const,
    CopyOp,
    FillOp,
    Flag,
    GatherOp,
    MmaOp,
    Origin,
    Region,
    Role,
    ScatterOp,
    StepValue,
    Task,
    TaskGraph,
    When,
)

__all__ = [
    "Buffer",
    "CallOp",
    "Const",
    "CopyOp",
    "FillOp",
    "Flag",
    "GatherOp",
    "MmaOp",
    "Origin",
    "Region",
    "Role",
    "ScatterOp",
    "StepValue",
    "Task",
    "TaskGraph",
    "When",
]
