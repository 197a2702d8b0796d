"""Machines as data: `load_target("npu40xx")`, or the path of a TOML file."""

from npurt.target.model import Barriers, Engine, MatrixRules, Memory, Route, Target
from npurt.target.reader import load_target, parse_target, target_names

__all__ = [
    "Barriers",
    "Engine",
    "MatrixRules",
    "Memory",
    "Route",
    "Target",
    "load_target",
    "parse_target",
    "target_names",
]
