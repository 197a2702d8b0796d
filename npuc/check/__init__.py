"""The independent checker of scheduled programs. It shares no code with the scheduler: what both get wrong, neither
sees.
"""

from npuc.check.checker import BarrierLimits, CheckFailed, check, check_within, require
from npuc.check.finding import Finding

__all__ = ["BarrierLimits", "CheckFailed", "Finding", "check", "check_within", "require"]
