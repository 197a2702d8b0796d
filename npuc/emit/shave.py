"""SHAVE programs of a blob: one kernel row per name and text, every text stored once, 1 KiB aligned."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuc.emit.elf import StringTable, align_up
from npurt.abi.records import SHAVE_KERNEL

TEXT_ALIGN = 1024  # bytes; a SHAVE fetches its text in lines of this size


@dataclass
class ShaveText:
    """Collects programs in order of first use."""

    _kernels: dict[tuple[str, bytes], int] = field(default_factory=dict)
    _texts: dict[bytes, int] = field(default_factory=dict)
    _size: int = 0

    def kernel(self, name: str, code: bytes) -> int:
        """The row of a program, which is added where it is new."""
        if code not in self._texts:
            self._texts[code] = align_up(self._size, TEXT_ALIGN)
            self._size = self._texts[code] + len(code)
        return self._kernels.setdefault((name, code), len(self._kernels))

    def rows(self, names: StringTable) -> np.ndarray:
        """The kernel table; the names are added to `names`."""
        rows = np.zeros(len(self._kernels), SHAVE_KERNEL)
        rows["text"] = [self._texts[code] for _, code in self._kernels]
        rows["text_bytes"] = [len(code) for _, code in self._kernels]
        rows["name"] = [names.add(name) for name, _ in self._kernels]
        return rows

    def text(self) -> bytes:
        out = bytearray()
        for code, offset in self._texts.items():
            out += bytes(offset - len(out)) + code
        return bytes(out)
