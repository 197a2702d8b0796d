"""What a user asks for by name must be there: a misspelt --dim would else be ignored in silence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from npuc.graph.options import BuildOptions, OptionError

_LLM_OPTIONS = ("max_prompt_len", "min_response_len", "chunk", "capacities")


def check_dims(model: ir.Model, options: BuildOptions) -> None:
    """model: as it was read. Raises OptionError naming each dim that it does not have, and those it has."""
    known = dict.fromkeys(
        str(extent.value)
        for value in model.graph.inputs
        for extent in (value.shape or ())
        if isinstance(extent, ir.SymbolicDim) and extent.value
    )
    wrong = [f"--dim {name}" for name in options.dims if name not in known]
    if wrong:
        there = f"there are {', '.join(known)}" if known else "it has none"
        raise OptionError(f"{', '.join(wrong)}: the model has no open dimension of that name ({there})")


def check_llm_dims(options: BuildOptions, state_dims: Iterable[Sequence[str]]) -> None:
    """Of a language model only sizes within a cache's rows can be given. state_dims: names of each cache's axes.

    Raises OptionError for others: they follow from the chunk and the capacities, or are the batch.
    """
    axes = [tuple(names) for names in state_dims]
    inner = {name for names in axes for name in names[1:]}
    batch = {names[0] for names in axes if names}
    wrong = [
        f"--dim {name}"
        for name, value in options.dims.items()
        if name not in inner and not (name in batch and value == 1)
    ]
    if wrong:
        raise OptionError(
            f"{', '.join(wrong)}: sizes of a language model's runs follow from --chunk and --capacities, and batch is 1"
        )


def unused_llm_options(options: BuildOptions) -> list[str]:
    """A report line where options of language models were given for a graph that is none."""
    given = [f"--{name.replace('_', '-')}" for name in _LLM_OPTIONS if getattr(options, name) is not None]
    return [f"the graph is no language model, so {', '.join(given)} change nothing"] if given else []
