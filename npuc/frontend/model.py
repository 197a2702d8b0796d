"""What the loader hands on: the graph as the file has it, and the files beside it that a blob carries along."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

Asset = Path | bytes


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model as read, before any check of its meaning.

    model: weights of external files are mapped on first use, never copied. assets: file name ("tokenizer.json",
    "chat_template.jinja", ...) to the file, or to its content where it was a part of another file. name: of the folder
    or the file. source: the model file's name for messages. absent: names of weights without data.
    """

    model: ir.Model
    assets: Mapping[str, Asset] = field(default_factory=dict)
    name: str = ""
    source: str = ""
    absent: frozenset[str] = frozenset()
