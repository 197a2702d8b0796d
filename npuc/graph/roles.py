"""Which graph is a language model, and what each of its inputs and outputs means."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

import onnx_ir as ir

from npuc.frontend.errors import Problems
from npuc.graph.state_info import StateInfo
from npuc.graph.tokens import ids_input


class Role(Enum):
    """What a graph input of a language model holds. B is 1, S the rows of a run, P the tokens in the cache."""

    IDS = "token ids [B, S]"
    MASK = "attention mask [B, P + S]"
    POSITIONS = "positions [B, S] or [S]"
    STATE = "a state"
    COUNT = "the number of tokens in the cache"


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
    model: ir.Model, states: Sequence[StateInfo], wanted: bool | None, counters: Collection[str] = ()
) -> Roles | None:
    """The roles of a language model, or None for a plain graph.

    A language model has token ids, at least one growing state and one output [.., S, V] of floats. wanted: False gives
    None at once, True makes what is missing an error. counters: ids of the states that count tokens. Raises
    ModelRefused naming inputs or outputs without a role.
    """
    if wanted is False:
        return None
    ids, growing = ids_input(model), [s for s in states if s.growing_axis is not None]
    logits = _logits(model, states)
    problems = Problems()
    if ids is None or not growing or not logits:
        if wanted:
            missing = "no token ids input" if ids is None else "no growing state" if not growing else "no logits output"
            problems.add(f"the graph is no language model: it has {missing}")
            problems.refuse()
        return None
    if len(logits) > 1:
        problems.add(f"the outputs {', '.join(logits)} all may be the logits; a language model must have one")
    roles = {s.input: Role.COUNT if s.id in counters else Role.STATE for s in states if s.input is not None}
    roles[ids.name or ""] = Role.IDS
    for value in model.graph.inputs:
        if value.name not in roles:
            role = _by_name(value)
            if role is None:
                problems.add(
                    f"graph input {value.name!r} of type {value.dtype} and shape {value.shape} is none of "
                    "token ids, attention mask, positions or cache"
                )
            else:
                roles[value.name or ""] = role
    problems.refuse()
    return Roles(roles, ids.name or "", logits[0], tuple(states))


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
