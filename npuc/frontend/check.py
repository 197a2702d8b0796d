"""Everything that can be said against a model before its dimensions have values, in one list."""

from __future__ import annotations

from npuc.frontend.errors import Problems
from npuc.frontend.infer import infer
from npuc.frontend.model import LoadedModel
from npuc.frontend.structure import check_structure


def check_loaded(loaded: LoadedModel) -> None:
    """Structure first, then types and shapes, then the rules of state. Raises ModelRefused with all problems."""
    from npuc.graph.branches import flatten
    from npuc.graph.edit import cloned
    from npuc.graph.state_declare import collect_variables, is_state_node

    problems = Problems()
    model = loaded.model
    check_structure(model, problems)
    types = infer(model, problems)
    nodes = [n for graph in model.graphs() for n in graph] + [
        n for f in model.functions.values() for n in f.all_nodes()
    ]
    if any(is_state_node(node) for node in nodes):
        if model.functions or any(is_state_node(n) and n.graph is not model.graph for n in nodes):
            model = cloned(model)
            flatten(model)
            types = infer(model, Problems())
        collect_variables(model, types, problems)
    problems.refuse(loaded.source)
