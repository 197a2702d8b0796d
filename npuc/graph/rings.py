"""Rings: a cache of which the model keeps the last rows, or which it writes in a circle, has just these slots on the
device, and token i lies in slot i modulo them.

A run reads the ring before it writes it. Its first row sees at most as many past tokens as the model keeps, so that no
more slots are needed; rows of the run itself are seen from the chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from npuc.graph.nodes import DOMAIN, is_op
from npuc.graph.state_class import StateClass
from npuc.graph.state_info import StateInfo
from npuc.graph.static import Draft

_PAST_OPERANDS = (3, 4)  # keys and values of npuc.Attention


def find_rings(
    drafts: Sequence[Draft], states: Sequence[StateInfo], classes: Sequence[StateClass], capacity: int
) -> dict[str, int]:
    """Slots of each state that becomes a ring, by the name of its input, once attention has been recognised.

    capacity: of the largest entry. In every entry npuc.Attention must be the one reader of the state, and a ring with
    as many slots its other operand: attention over rings knows the token of each slot.
    """
    kept = {}
    for state, kind in zip(states, classes, strict=True):
        rows = kind.slots if kind.circular else kind.kept if kind.slots is None else None
        if kind.kind == "append" and rows is not None and rows < capacity:
            kept[state.input or ""] = rows
    for draft in drafts:
        inputs = {value.name or "": value for value in draft.graph.inputs}
        for name in [name for name in kept if name in inputs]:
            if not all(_is_past(use.node, use.idx, kept) for use in inputs[name].uses()):
                del kept[name]
    # a state whose partner fell out above falls out with it
    return {name: slots for name, slots in kept.items() if all(_paired(draft, name, kept) for draft in drafts)}


def say_rings(draft: Draft, rings: Mapping[str, int]) -> None:
    """Tells each npuc.Attention over rings the number of their slots, in place."""
    for node in draft.graph:
        past = node.inputs[_PAST_OPERANDS[0]] if is_op(node, "Attention", domain=DOMAIN) else None
        slots = rings.get(past.name or "") if past is not None else None
        if slots is not None:
            node.attributes.add(ir.AttrInt64("ring", slots))


def _is_past(node: ir.Node, index: int, kept: Mapping[str, int]) -> bool:
    """Whether an operand is past keys or values beside others with as many slots."""
    if not is_op(node, "Attention", domain=DOMAIN) or index not in _PAST_OPERANDS:
        return False
    slots = [kept.get(value.name or "") if value is not None else None for value in _pasts(node)]
    return slots[0] is not None and slots[0] == slots[1]


def _paired(draft: Draft, name: str, kept: Mapping[str, int]) -> bool:
    value = next((value for value in draft.graph.inputs if value.name == name), None)
    return value is None or all(_is_past(use.node, use.idx, kept) for use in value.uses())


def _pasts(node: ir.Node) -> list[ir.Value | None]:
    return [node.inputs[index] for index in _PAST_OPERANDS]
