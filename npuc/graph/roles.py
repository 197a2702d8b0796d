"""Which graph is a language model, and what each of its inputs and outputs means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.nodes import label
from npuc.graph.state_class import StateClass
from npuc.graph.state_info import StateInfo
from npuc.graph.tokens import ids_input


class Role(Enum):
    """What a graph input of a language model holds. B is 1, S the rows of a run, P the tokens in the cache."""

    IDS = "token ids [B, S]"
    MASK = "attention mask [B, P + S]"
    POSITIONS = "positions [B, S] or [S]"
    STATE = "a state"
    COUNT = "the number of tokens in the cache"
    TOTAL = "the number of tokens after the run"
    LAST = "the number of tokens after the run, less one"


STEP_ROLES = (Role.MASK, Role.POSITIONS, Role.COUNT, Role.TOTAL, Role.LAST)
"""Roles whose contents the step alone decides."""

_OPERANDS = {
    ("", "TensorScatter"): {2: Role.COUNT},
    ("", "Attention"): {6: Role.TOTAL},
    ("com.microsoft", "GroupQueryAttention"): {5: Role.LAST, 6: Role.TOTAL},
}
"""Operands that mean a number of tokens, by what their operators say of them."""

_PASSING = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def roles_by_operand(model: ir.Model) -> dict[str, Role]:
    """Roles of the graph inputs that operators of caches read as numbers of tokens, by name. For a graph whose fused
    operators have not been written out yet. Raises ModelRefused for an input that two operators read as different
    numbers."""
    found: dict[str, Role] = {}
    problems = Problems()
    for node in model.graph:
        for index, role in _OPERANDS.get((node.domain, node.op_type), {}).items():
            value = node.inputs[index] if index < len(node.inputs) else None
            while value is not None and (made := value.producer()) is not None and made.op_type in _PASSING:
                value = made.inputs[0]
            if value is not None and value.is_graph_input() and found.setdefault(value.name or "", role) is not role:
                other = found[value.name or ""].value
                problems.add(
                    f"graph input {value.name!r} is read as {role.value}, and elsewhere as {other}", label(node)
                )
    problems.refuse()
    return found


_WORDS = (
    (Role.POSITIONS, ("position",)),
    (Role.MASK, ("mask",)),
)
_STEP_TYPES = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.FLOAT16)


@dataclass(frozen=True)
class Roles:
    """The reading of a language model's graph.

    inputs: role of every graph input. ids: the token ids input. logits: the output with a number per vocabulary entry.
    states: the model's states. growing: those that gain the rows of a run.
    """

    inputs: dict[str, Role]
    ids: str
    logits: str
    states: tuple[StateInfo, ...]

    @property
    def growing(self) -> tuple[StateInfo, ...]:
        return tuple(s for s in self.states if s.growing_axis is not None)


def find_roles(
    model: ir.Model,
    states: Sequence[StateInfo],
    wanted: bool | None,
    classes: Sequence[StateClass],
    known: Mapping[str, Role],
) -> Roles | None:
    """The roles of a language model, or None for a plain graph.

    A language model has token ids, a state that grows or is replaced in each run, and one output [.., S, V] of floats.
    Where none grows (recurrent models) and the user did not say which it is, it also has a role for each input, and
    one output beside the states. wanted: False gives None at once, True makes what is missing an error. classes: of the
    states. known: roles of inputs that are already known, by name. Raises ModelRefused naming inputs or outputs without
    a role.
    """
    if wanted is False:
        return None
    ids, growing = ids_input(model), [s for s in states if s.growing_axis is not None]
    counters = {kind.id for kind in classes if kind.kind == "counter"}
    replaced = [kind.id for kind in classes if kind.kind == "replace"]
    logits = _logits(model, states)
    problems = Problems()
    if ids is None or not (growing or replaced) or not logits:
        if wanted:
            missing = (
                "no token ids input" if ids is None
                else "no state that grows or is replaced" if not (growing or replaced)
                else "no logits output"
            )  # fmt: skip
            problems.add(f"the graph is no language model: it has {missing}")
            problems.refuse()
        return None
    if not growing and wanted is None and not _is_recurrent(model, states, ids, logits, known):
        return None
    if len(logits) > 1:
        problems.add(f"the outputs {', '.join(logits)} all may be the logits; a language model must have one")
    roles = {s.input: Role.COUNT if s.id in counters else Role.STATE for s in states if s.input is not None}
    roles[ids.name or ""] = Role.IDS
    for value in model.graph.inputs:
        if value.name not in roles:
            role = known.get(value.name or "") or _by_name(value)
            if role is None:
                problems.add(
                    f"graph input {value.name!r} of type {value.dtype} and shape {value.shape} is none of "
                    "token ids, attention mask, positions or cache"
                )
            else:
                roles[value.name or ""] = role
    problems.refuse()
    return Roles(roles, ids.name or "", logits[0], tuple(states))


def _is_recurrent(
    model: ir.Model, states: Sequence[StateInfo], ids: ir.Value, logits: Sequence[str], known: Mapping[str, Role]
) -> bool:
    """Whether token ids, steps and states are all that goes in, and logits and states all that comes out."""
    sources = {state.input for state in states} | {ids.name} | known.keys()
    given = all(value.name in sources or _by_name(value) is not None for value in model.graph.inputs)
    kept = {state.output for state in states}
    made = [value for value in model.graph.outputs if value.name not in kept]
    return given and len(logits) == len(made) == 1 and made[0].shape is not None and len(made[0].shape) == 3


def _logits(model: ir.Model, states: Sequence[StateInfo]) -> list[str]:
    kept = {state.output for state in states}
    others = [v for v in model.graph.outputs if v.name not in kept]
    floats = [v for v in others if v.dtype is not None and v.dtype.is_floating_point()]
    named = [v for v in floats if v.name == "logits"]
    return [v.name or "" for v in named or floats]


def _by_name(value: ir.Value) -> Role | None:
    if value.dtype not in _STEP_TYPES or value.shape is None:
        return None
    for role, words in _WORDS:
        if any(word in (value.name or "").lower() for word in words):
            return role
    return None
