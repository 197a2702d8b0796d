"""One function per op family: where the node's inputs lie -> kernel calls and where its outputs lie.

``RULES`` maps (domain, op type) to the function. Elementwise ops are not in it: they are lowered as groups.
"""

from npuc.lower.rules.table import RULES, Rule

__all__ = ["RULES", "Rule"]
