"""Device memory by 64-bit address: every section and bound buffer lies in a range of its own.

Addresses are handed out in order, so equal sequences of calls give equal addresses. Ranges never touch: an access past
the end of one cannot reach the next.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from npurt.errors import DeviceError

FIRST_ADDRESS = 0x1_0000_0000
GRANULE = 1 << 16  # addresses of ranges are multiples of it, with at least one granule between them


class AddressSpace:
    """Ranges of addresses and the byte arrays behind them."""

    def __init__(self) -> None:
        self._next = FIRST_ADDRESS
        self._starts: list[int] = []
        self._memory: dict[int, np.ndarray] = {}

    def place(self, memory: np.ndarray) -> int:
        """Gives a flat uint8 array a range of addresses; returns the first."""
        address = self._next
        self._next += -(-memory.size // GRANULE) * GRANULE + GRANULE
        self._starts.append(address)
        self._memory[address] = memory
        return address

    def release(self, address: int) -> None:
        """Forgets the range that starts at `address`."""
        del self._memory[address]
        self._starts.remove(address)

    def resolve(self, address: int, size: int) -> tuple[np.ndarray, int]:
        """The array behind `size` bytes from `address`, and the byte offset in it."""
        at = bisect_right(self._starts, address) - 1
        if at >= 0:
            start = self._starts[at]
            memory = self._memory[start]
            if address + size <= start + memory.size:
                return memory, address - start
        raise DeviceError(f"no memory is mapped at {address:#x} to {address + size:#x}")


class Bases:
    """The relocated base table, resolved: where an operand's (base, offset) lies."""

    def __init__(self, bases: np.ndarray, space: AddressSpace) -> None:
        self._found = [space.resolve(int(row["address"]), int(row["size"])) for row in bases]

    def __call__(self, base: int, offset: int) -> tuple[np.ndarray, int]:
        """(memory, byte offset in it)."""
        memory, start = self._found[base]
        return memory, start + offset
