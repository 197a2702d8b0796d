"""The last word on caches: only what leaves out the slots that no token has filled reads them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from npuc.frontend.errors import Problems
from npuc.graph.fuse.rule import Refusal
from npuc.graph.nodes import DOMAIN, is_op, label
from npuc.graph.static import Draft

_READERS = ("Attention", "PastRows")


def check_cache_readers(draft: Draft, caches: Collection[str | None], refusals: Sequence[Refusal]) -> None:
    """Raises ModelRefused if a node other than npuc.Attention and npuc.PastRows reads a cache, with the reasons of the
    attention rules.

    caches: names of the inputs that are caches. Slots from n_past on hold anything; only these two leave them out.
    """
    if draft.n_past is None:
        return
    problems = Problems()
    for value in draft.shapes:
        for use in value.uses() if value.name in caches and value.is_graph_input() else ():
            if not is_op(use.node, *_READERS, domain=DOMAIN):
                problems.add(
                    "a cache is read by a node that belongs to no attention which a rule takes", label(use.node)
                )
    if problems:
        for refusal in refusals:
            if refusal.rule.startswith("attention"):
                problems.add(refusal.reason, refusal.node)
    problems.refuse()
