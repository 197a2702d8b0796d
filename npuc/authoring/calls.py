"""The calls that a model makes to a kernel, as examples to tune it on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuc.answers import plain_params, type_text
from npuc.authoring.errors import KernelSourceError
from npuc.authoring.source import FoundKernel
from npuc.driver import CompileOptions, compile_model
from npuc.lower.fit import array_type
from npuc.lower.library import Binding, Library
from npuc.progress import Report
from npuc.tile import Example


def calls_of(found: FoundKernel, what: str, model: Path, options: CompileOptions, report: Report) -> list[Example]:
    """One example for each different call of `what`, a kernel of the library, as `found` takes it.

    They have no values: types, fixed parameters, and the step with a full cache and all rows. Their tile sizes are
    those that the compiler chose, where `found` is the library's own. Errors: those of a compilation; KernelSourceError
    where the model makes no such call; BindingError where `found` cannot take one.
    """
    if found.origin != "library":  # compiled with it, as the compiler's own kernel may get more arrays
        options = replace(options, kernels=(*options.kernels, f"{what}={found.words}"))
    compiled = compile_model(model, options, report)
    assert compiled is not None, "nothing stops the compilation"
    library = Library() if found.origin == "library" else Library({what: _binding(found)})
    examples: dict[str, Example] = {}
    made: dict[str, None] = {}
    for program, lowered in zip(compiled.programs, compiled.lowered, strict=True):
        step = {"n_past": program.capacity, "n_new": max(program.rows, 1)}
        for call, choice in lowered.choices:
            made.setdefault(call.kernel)
            if call.kernel != what:
                continue
            regions, fixed = library.fitted(what, call.arrays, call.params)
            types = [None if region is None else array_type(region) for region in regions]
            params: Mapping[str, Any] = {**fixed, **choice.params} if found.origin == "library" else fixed
            key = repr([*map(type_text, types), plain_params(fixed), step])
            examples.setdefault(key, Example(types, params, _no_reference, step))
    if not examples:
        raise KernelSourceError(f"{model} makes no call of {what}; it calls {', '.join(made)}")
    return list(examples.values())


def _binding(found: FoundKernel) -> Binding:
    return Binding(found.name, found.origin, found.kernel, found.candidates)


def _no_reference(*arrays: Any) -> Any:
    raise AssertionError("a call of a model is timed, and not tried")
