"""`npuc check`: onnxruntime against the compiled program, from the answer down to the first node group that differs."""

from npuc.compare.check import Request, check
from npuc.compare.result import Result

__all__ = ["Request", "Result", "check"]
