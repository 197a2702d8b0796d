"""Conflicts of a vector unit's strided stores: pieces of one vector that fall into one bank group wait for each other.

A memory of `bank_groups` groups has rows of `bank_row` bytes in turn on the groups, and each group takes one write a
cycle. So a vector whose pieces lie a multiple of all groups apart is written piece by piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from npurt.target.model import Memory


def store_cycles(
    shape: Sequence[int], source: Sequence[int], sink: Sequence[int], item: int, memory: Memory, vector: int
) -> int:
    """How many times as long a store takes as one without conflicts.

    shape: elements, outermost dimension first; source, sink: strides in bytes; item: bytes of an element; vector: bytes
    of one register, which holds what is adjacent in the source.
    """
    if memory.bank_groups == 1:
        return 1
    piece = item
    left = sorted((stride, place) for place, stride in enumerate(source) if shape[place] > 1)
    while left and left[0][0] == piece and sink[left[0][1]] == piece:
        piece *= shape[left[0][1]]
        left = left[1:]
    if piece >= vector or not left or left[0][0] != piece:
        return 1  # whole vectors, or pieces that were not adjacent in the source
    pieces = min(vector // piece, shape[left[0][1]])
    groups = memory.bank_groups // gcd(sink[left[0][1]] // memory.bank_row, memory.bank_groups)
    return -(-pieces // groups)
