"""Everything that can be said against a model before its dimensions have values, in one list."""

from __future__ import annotations

from npuc.frontend.errors import Problems
from npuc.frontend.infer import infer
from npuc.frontend.model import LoadedModel
from npuc.frontend.structure import check_structure


def check_loaded(loaded: LoadedModel) -> None:
    """Structure first, then types and shapes, then the rules of state. Raises ModelRefused with all problems."""
    from npuc.graph.state_declare import check_declarations

    problems = Problems()
    check_structure(loaded.model, problems)
    types = infer(loaded.model, problems)
    check_declarations(loaded.model, types, problems)
    problems.refuse(loaded.source)
