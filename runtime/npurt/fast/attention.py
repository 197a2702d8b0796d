"""placeholder"""
from __future__ import annotations
from typing import Any
class Groups:
    def calls(self, op: Any) -> Any: return None
    def before(self) -> Any: return []
def find(*a: Any) -> Groups: return Groups()
