"""A finished blob against the model that it claims to be: the options behind it, and whether it is what they give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx_ir as ir

from npuc.driver import CompileOptions
from npuc.graph.entry import ModelGraphs
from npuc.report.diff import diff
from npurt.image import Image

SHOWN_LINES = 12
MAIN = "main"


def options_of(image: Image, model: ir.Model, given: CompileOptions) -> CompileOptions:
    """The options that a blob says it was compiled with, as far as its metadata tell; `given` has the others."""
    meta = image.meta
    llm = meta["llm"]
    if llm is not None:
        return replace(
            given, target=meta["target"], precision=meta["precision"], chunk=llm["chunk"],
            max_prompt_len=llm["max_prompt_len"], capacities=tuple(llm["capacities"]),
        )  # fmt: skip
    shapes = {port.name: port.shape for entry in image.metadata.entries for port in entry.inputs}
    host: tuple[str, ...] = ()
    if image.host is not None:
        shapes |= {name: value.shape for name, value in image.host.inputs.items()}
        host = tuple(dict.fromkeys(step.op for step in image.host.host_steps))
    dims = {}
    for value in model.graph.inputs:
        shape = shapes.get(value.name or "")
        if shape is not None and value.shape is not None and len(shape) == len(value.shape):
            dims.update({d.value: n for d, n in zip(value.shape, shape, strict=True) if isinstance(d, ir.SymbolicDim)})
    named = {name: extent for name, extent in dims.items() if name is not None}
    return replace(given, target=meta["target"], precision=meta["precision"], llm=False, host_ops=host,
                   dims={**named, **given.dims})  # fmt: skip


def other_ports(image: Image, graphs: ModelGraphs) -> str:
    """What makes running the blob in the model's place impossible, or ""."""
    theirs = {
        entry.name: (
            {port.name: port.shape for port in entry.inputs},
            {port.name: port.shape for port in entry.outputs},
        )
        for entry in image.metadata.entries
    }
    if image.host is not None:
        inputs, outputs = ({name: value.shape for name, value in way.items()} for way in
                           (image.host.inputs, image.host.outputs))  # fmt: skip
        theirs = {image.host.name: (inputs, outputs)}
    ours = {entry.label: entry for entry in graphs.entries}
    if set(theirs) != set(ours):
        return f"it has the entries {', '.join(theirs)}, and the model gives {', '.join(ours)}"
    for label, entry in ours.items():
        for way, shapes in zip(("input", "output"), theirs[label], strict=True):
            wanted = {port.name: port.shape for port in (entry.inputs if way == "input" else entry.outputs)}
            for name, shape in shapes.items():
                if wanted.get(name) != shape:
                    return f"entry {label} has the {way} {name} {list(shape)}, which the model's has not"
    return ""


def blob_lines(given: Path, fresh: Path, why: str) -> tuple[str, ...]:
    """Why a blob is not what the model compiles to, with the first lines of `npuc diff`."""
    lines = diff(given, fresh).lines
    head = f"{given.name} is not what the model compiles to with these options: {why}"
    more = [f"  and {len(lines) - SHOWN_LINES} more lines (npuc diff)"] if len(lines) > SHOWN_LINES else []
    shown = [f"  {line}" for line in lines[:SHOWN_LINES]] or ["  npuc diff sees no difference in the programs"]
    return (head, *shown, *more)
