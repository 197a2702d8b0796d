"""Machines as data: `load_target("npu40xx")`, or the path of a TOML file."""

from npurt.target.model import (
    OP_CLASSES,
    Barriers,
    Engine,
    Figure,
    MatrixRules,
    Memory,
    Operands,
    Pool,
    Route,
    SyncCosts,
    Target,
)
from npurt.target.reader import load_target, parse_target, target_names
from npurt.target.scale import scaled

__all__ = [
    "OP_CLASSES",
    "Barriers",
    "Engine",
    "Figure",
    "MatrixRules",
    "Memory",
    "Operands",
    "Pool",
    "Route",
    "SyncCosts",
    "Target",
    "load_target",
    "parse_target",
    "scaled",
    "target_names",
]
