"""Saves a stage so that a viewer opens it and onnxruntime runs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from npuc.graph.functions import add_functions
from npuc.graph.ports import name_outputs
from npuc.graph.static import Draft


def dump_model(model: ir.Model, path: Path) -> None:
    """Writes a copy of a model with the bodies of npuc's operators."""
    copy = model.clone()
    add_functions(copy)
    ir.save(copy, path)


def dump_draft(draft: Draft, path: Path) -> None:
    """Writes a copy of an entry; its outputs have the names they will have at the end."""
    copy = replace(draft, model=draft.model.clone(), outputs=list(draft.outputs))
    name_outputs(copy)
    dump_model(copy.model, path)
