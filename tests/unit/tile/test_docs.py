"""The page about the tile language: its code runs, and its table names every function there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from npuc import tile as t

PAGE = Path(__file__).parents[3] / "docs" / "tile-language.md"


def test_the_code_of_the_page_runs_in_order() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 7
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), scope)


def test_the_table_names_every_function() -> None:
    table = PAGE.read_text().partition("## 5.")[2].partition("## 6.")[0]
    words = set(re.findall(r"\w+", table))
    other = {"Accumulator", "Array", "ArrayType", "Condition", "DType", "Example", "Index", "Kernel", "KernelError",
             "Plan", "Tile", "TileLike", "Trace", "TraceCache", "dense", "kernel", "f16", "f32", "bf16", "i32", "i8",
             "u8", "i64", "boolean", "i4", "u4", "u2", "e4m3", "e5m2", "e2m1", "e8m0"}  # fmt: skip
    assert set(t.__all__) - other - words == set()
