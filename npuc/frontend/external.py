"""External weight files: allowed only beside the model, and checked against their sizes before anything is mapped."""

from __future__ import annotations

import os
from pathlib import Path

import onnx_ir as ir

from npuc.frontend.absent import absent
from npuc.frontend.errors import Problems

MISSING = (Path(), 0)


def bind_external(model: ir.Model, model_file: Path, problems: Problems, *, values: bool = True) -> set[str]:
    """Points every external tensor at its file in the model's folder, and adds a problem for each that must not be
    used. values: False lets a file be missing; the names of the weights in it come back, without data.

    A location is relative, without "..", and ends in the folder also after all links are followed. One layout more is
    let through, that of download caches: model file and weight file are both links into one other folder.
    """
    folder = model_file.parent
    store = model_file.resolve().parent
    sizes: dict[str, tuple[Path, int] | None] = {}
    without: set[str] = set()
    for graph in model.graphs():
        for value in graph.initializers.values():
            tensor = value.const_value
            if not isinstance(tensor, ir.ExternalTensor):
                continue
            location = os.fspath(tensor.location)
            if location not in sizes:
                sizes[location] = _find(location, folder, store, problems, values)
            found = sizes[location]
            if found == MISSING:
                without.add(value.name or "")
                value.const_value = absent(tensor, problems)
            elif found is not None and _fits(tensor, location, found[1], problems):
                value.const_value = _at(tensor, found[0])
    return without


def _find(location: str, folder: Path, store: Path, problems: Problems, values: bool) -> tuple[Path, int] | None:
    """The real file of a location and its size; None for a problem, MISSING where that is none."""
    path = Path(location)
    if not location or path.is_absolute() or ".." in path.parts or "\\" in location or "\0" in location:
        problems.add(f"external data path {location!r} leaves the model's folder")
        return None
    try:
        real = (folder / path).resolve()
    except (OSError, RuntimeError):  # a loop of links; RuntimeError before Python 3.13
        problems.add(f"external data path {location!r} is a link that leads nowhere")
        return None
    if not real.is_relative_to(folder.resolve()) and real.parent != store:
        problems.add(f"external data path {location!r} is a link out of the model's folder")
        return None
    if not values and not real.exists():
        return MISSING
    if not real.is_file():
        problems.add(f"external data file {location!r} is missing")
        return None
    return real, real.stat().st_size


def _fits(tensor: ir.ExternalTensor, location: str, size: int, problems: Problems) -> bool:
    offset, length = tensor.offset or 0, tensor.length
    if offset < 0 or (length is not None and length != tensor.nbytes):
        problems.add(
            f"external data of {length} bytes at {offset} do not fit a tensor of {tensor.nbytes} bytes",
            f"weight {tensor.name}",
        )
        return False
    if offset + tensor.nbytes > size:
        problems.add(
            f"external data file {location!r} ends at {size} bytes, before the data of a weight do",
            f"weight {tensor.name}",
        )
        return False
    return True


def _at(tensor: ir.ExternalTensor, real: Path) -> ir.ExternalTensor:
    """The same tensor with links resolved, as the mapping insists that file and folder agree after that."""
    assert tensor.name is not None
    return ir.ExternalTensor(
        real.name,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=tensor.shape,
        name=tensor.name,
        base_dir=real.parent,
    )
