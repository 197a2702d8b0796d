"""Everything that can be said against a model before its dimensions have values, in one list."""

from __future__ import annotations

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.frontend.infer import infer
from npuc.frontend.model import LoadedModel
from npuc.frontend.structure import check_structure


def check_loaded(loaded: LoadedModel) -> None:
    """Structure first, then types and shapes, then the rules of state. Raises ModelRefused with all problems."""
    from npuc.graph.branches import flatten
    from npuc.graph.edit import cloned
    from npuc.graph.state_declare import collect_variables

    problems, model = Problems(), loaded.model
    check_structure(model, problems)
    types = infer(model, problems)
    if not _state_inside(model):
        collect_variables(model, types, problems)
    elif not problems:  # a sound model: functions and constant branches can be resolved
        model = cloned(model)
        flatten(model)
        collect_variables(model, infer(model, Problems()), problems)
    problems.refuse(loaded.source)


def _state_inside(model: ir.Model) -> bool:
    """Whether a state node is in a function or a subgraph."""
    from npuc.graph.state_declare import is_state_node

    graphs = [g for g in model.graphs() if g is not model.graph] + [f.graph for f in model.functions.values()]
    return any(is_state_node(node) for graph in graphs for node in graph.all_nodes())
