"""One value of a graph, computed by onnxruntime from the nearest values that are known: a group's own error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from npuc.compare.oracle import Oracle
from npuc.graph.clean import remove_dead
from npuc.graph.nodes import fresh_name, replace_value


def isolated(model: ir.Model, value: str, known: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value that the graph gives for it where every value of `known`, but itself, is what is given.

    model: stays as it is. known: by name, in full shape; those that lie behind others are not used. Raises
    OracleRefused.
    """
    copy = model.clone()
    graph = copy.graph
    made = {output.name: output for node in graph for output in node.outputs}
    graph.outputs[:] = [made[value]]
    feeds: dict[str, np.ndarray] = {}
    for name, array in known.items():
        if name in made and name != value:
            given = ir.Value(name=fresh_name(graph, f"{name}~given"), shape=made[name].shape, type=made[name].type)
            feeds[str(given.name)] = array
            graph.inputs.append(given)
            replace_value(made[name], given)
        elif name not in made:
            feeds[name] = array
    remove_dead(graph)
    for unused in [v for v in graph.inputs if not v.uses()]:
        graph.inputs.remove(unused)
    return Oracle(copy, f"the nodes behind {value}").run(feeds)[value]
