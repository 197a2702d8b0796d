"""What people see of a blob: its listing, what changed between two, what it holds."""

from npuc.report.diff import DiffResult, diff
from npuc.report.disasm import disasm
from npuc.report.inspect import inspect_blob, inspect_text
from npuc.report.thresholds import ThresholdError

__all__ = ["DiffResult", "ThresholdError", "diff", "disasm", "inspect_blob", "inspect_text"]
