"""A kernel as the one entry of a blob: lowered, scheduled, checked, written, loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.check import require
from npuc.emit import write_blob
from npuc.report.metadata import EntryPorts, Port, build_metadata
from npuc.schedule import schedule
from npuc.tasks import Buffer, Origin, Region, TaskGraph
from npuc.tasks.graph import Role
from npuc.tile import Kernel, dense
from npuc.tile.eager import array_type
from npurt import load
from npurt.image import Image
from npurt.target import load_target

Array = np.ndarray


def kernel_image(
    kernel: Kernel, inputs: Mapping[str, Array], outputs: Mapping[str, Array], folder: Path, *, rows: int = 0,
    capacity: int = 0, **params: Any,
) -> Image:  # fmt: skip
    """The loaded blob of `kernel(*inputs, *outputs)`, all arrays contiguous in DDR."""
    regions, types, ports = [], [], {}
    for way, role, arrays in (("in", Role.INPUT, inputs), ("out", Role.OUTPUT, outputs)):
        ports[way] = []
        for name, array in arrays.items():
            type_ = array_type(np.ascontiguousarray(array))
            buffer = Buffer(f"main.{way}.{name}", "ddr", array.nbytes, role)
            regions.append(Region(buffer, 0, type_.dtype, type_.shape, type_.stride))
            types.append(dense(type_.dtype, type_.shape))
            ports[way].append(Port(name, type_.dtype, type_.shape, type_.dtype.label))
    tasks = kernel.trace(types, params).instantiate(regions, Origin("main", "node", kernel.name), "k")
    target = load_target("npu40xx")
    program = schedule(TaskGraph("main", tasks, rows, capacity), target)
    require(program, target)
    entry = EntryPorts("main", rows, capacity, tuple(ports["in"]), tuple(ports["out"]))
    path = folder / "kernel.npu"
    write_blob([program], [], build_metadata([entry], [], precision="f16", target="npu40xx"), {}, path)
    return load(path)
