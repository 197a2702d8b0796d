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
    ir.save(stage_of(draft), path)


def stage_of(draft: Draft) -> ir.Model:
    """A copy of an entry as it is written: outputs named, with the bodies of npuc's operators."""
    copy = replace(draft, model=draft.model.clone(), outputs=list(draft.outputs))
    name_outputs(copy)
    add_functions(copy.model)
    return copy.model
