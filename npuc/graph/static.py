"""Static entries: a copy of the pure model for each entry, with a number for every extent of its inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from npuc.frontend.errors import ModelRefused, Problems
from npuc.graph.dims import InputDims
from npuc.graph.entry import EntryName, entry_label
from npuc.graph.infer import Dims
from npuc.graph.options import BuildOptions
from npuc.graph.roles import STEP_ROLES, Role
from npuc.graph.sizes import Sizes

N_PAST, N_NEW = "n_past", "n_new"


@dataclass
class Draft:
    """An entry on its way. model: its own copy. shapes: of its graph inputs. n_past: the scalar input, in a language
    model. outputs: names that the graph outputs have at the end, in order."""

    name: EntryName
    rows: int
    capacity: int
    model: ir.Model
    shapes: dict[ir.Value, Dims]
    n_past: ir.Value | None = None
    outputs: list[str] = field(default_factory=list)

    @property
    def graph(self) -> ir.Graph:
        return self.model.graph

    @property
    def label(self) -> str:
        return entry_label(self.name, self.capacity)


def llm_drafts(model: ir.Model, dims: InputDims, sizes: Sizes) -> list[Draft]:
    """Copies for prefill and each generate capacity. The head is cut from one of them later.

    A graph that insists on several rows has them in every entry; a new token is the first of them, the others padding.
    """
    one = dims.fixed_rows or 1
    wanted: list[tuple[EntryName, int, int]] = [("prefill", sizes.chunk, sizes.prefill_capacity)]
    wanted += [("generate", one, capacity) for capacity in sizes.capacities]
    return [_llm_draft(model, dims, *what) for what in wanted]


def _llm_draft(model: ir.Model, dims: InputDims, name: EntryName, rows: int, capacity: int) -> Draft:
    copy = model.clone()
    copy.graph.meta.clear()
    by_name = {value.name: value for value in copy.graph.inputs}
    shapes = {by_name[value.name]: shape for value, shape in dims.shapes(capacity, rows).items()}
    for value, shape in shapes.items():
        value.shape = ir.Shape(shape)
    n_past, n_new = (
        ir.Value(name=key, shape=ir.Shape([]), type=ir.TensorType(ir.DataType.INT64)) for key in (N_PAST, N_NEW)
    )
    copy.graph.inputs.extend([n_past, n_new])
    shapes.update({n_past: (), n_new: ()})
    counts = {s.output for s in dims.roles.states if dims.roles.inputs.get(s.input or "") is Role.COUNT}
    for value in [v for v in copy.graph.outputs if v.name in counts]:
        copy.graph.outputs.remove(value)
    return Draft(name, rows, capacity, copy, shapes, n_past, [value.name or "" for value in copy.graph.outputs])


def drop_step_inputs(draft: Draft, roles: Mapping[str, Role]) -> None:
    """Takes attention mask and positions out of an entry's inputs; their meaning is in tables and masks by now."""
    problems = Problems()
    for value in [v for v in draft.graph.inputs if roles.get(v.name or "") in STEP_ROLES]:
        if value.uses():
            readers = ", ".join(use.node.name or "" for use in value.uses())
            problems.add(f"graph input {value.name!r} is read by {readers} for more than positions and masks")
        else:
            draft.graph.inputs.remove(value)
            del draft.shapes[value]
    problems.refuse()


def give_caches_their_capacity(draft: Draft, caches: Collection[str | None], rings: Mapping[str, int]) -> None:
    """Lets these inputs have the entry's capacity as slots, in place, those in `rings` at most these. Until here they
    have had what the model keeps: the last rows, or a number of its own. Attention, their one reader by now, takes any
    number."""
    for value, shape in draft.shapes.items():
        if value.name in caches and value.is_graph_input():
            slots = min(draft.capacity, rings.get(value.name or "", draft.capacity))
            draft.shapes[value] = (*shape[:2], slots, shape[3])
            value.shape = ir.Shape(draft.shapes[value])


def main_draft(
    model: ir.Model, options: BuildOptions, extents: Mapping[tuple[str, int], int], rows: int = 0, capacity: int = 0
) -> Draft:
    """An entry of a graph that is no language model.

    extents: by (input, axis), of growing states. rows: that a run adds to them; capacity: that earlier runs have
    added. Raises ModelRefused naming every dim without a value, with `--dim NAME=VALUE`.
    """
    copy = model.clone()
    copy.graph.meta.clear()
    problems = Problems()
    shapes: dict[ir.Value, Dims] = {}
    for value in copy.graph.inputs:
        if value.type is not None and not isinstance(value.type, ir.TensorType):
            what = type(value.type).__name__.removesuffix("Type").lower()
            raise ModelRefused([f"graph input {value.name!r} is of a {what} type; a device holds tensors of numbers"])
        if value.shape is None:
            raise ModelRefused([f"graph input {value.name!r} has no shape; only inputs of known rank are supported"])
        shape: list[int] = []
        for axis, extent in enumerate(value.shape):
            name = extent.value if isinstance(extent, ir.SymbolicDim) else None
            if (value.name, axis) in extents:
                shape.append(extents[value.name or "", axis])
            elif isinstance(extent, int):
                shape.append(extent)
            elif name in options.dims:
                shape.append(options.dims[str(name)])
            else:
                what = f"dim {name!r}" if name else f"axis {axis}, which has no name,"
                problems.add(f"{what} of input {value.name!r} has no value; give it with --dim {name or 'NAME'}=VALUE")
                shape.append(1)
        shapes[value] = tuple(shape)
        value.shape = ir.Shape(shape)
    problems.refuse()
    return Draft("main", rows, capacity, copy, shapes, None, [value.name or "" for value in copy.graph.outputs])
