"""From ``--kernel WHAT=KERNEL`` and ``--choices FILE`` to the library that lowering uses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from npuc.answers import plain_params, type_text
from npuc.authoring.choices import KernelChoice, read_choices
from npuc.authoring.errors import KernelSourceError
from npuc.authoring.source import FoundKernel, find
from npuc.lower.library import Binding, Library, OpKey, call_name
from npuc.tile import ArrayType
from npukernels import registry
from npurt.target import Target

Types = Sequence[ArrayType | None]
Sizes = Mapping[str, Any]


def bindings(words: Sequence[str]) -> tuple[dict[str, Binding], dict[OpKey, Binding]]:
    """Of texts ``WHAT=KERNEL``: bindings by library kernel, and by operator. Errors: KernelSourceError."""
    kernels: dict[str, Binding] = {}
    ops: dict[OpKey, Binding] = {}
    for text in words:
        what, equals, kernel = text.partition("=")
        if not (what and equals and kernel):
            raise KernelSourceError(f"{text!r} is not of the form WHAT=FILE.py:NAME, such as attention=my.py:flash")
        found = find(kernel)
        binding = Binding(found.name, found.origin, found.kernel, found.candidates)
        if what in registry.KERNELS:
            if what in kernels:
                raise KernelSourceError(f"{what} is bound twice, to {kernels[what].name} and to {found.name}")
            kernels[what] = binding
            continue
        key = _operator(what)
        if key in ops:
            raise KernelSourceError(f"{what} is bound twice, to {ops[key].name} and to {found.name}")
        ops[key] = binding
    return kernels, ops


def call_lines(library: Library, made: Sequence[str]) -> list[str]:
    """How many of the calls `made`, by name, each of the caller's kernels got. Errors: KernelSourceError for one that
    got none."""
    bound: list[tuple[str, Binding]] = [*library.kernels.items()]
    bound += [(call_name(key), binding) for key, binding in library.ops.items()]
    lines = []
    for what, binding in bound:
        calls = sum(1 for kernel in made if library.binding(kernel) is binding)
        if not calls:
            used = ", ".join(dict.fromkeys(made)) or "none at all"
            raise KernelSourceError(f"kernel {binding.name} for {what}: the model has no such call; it has {used}")
        lines.append(f"kernel {binding.name} of {binding.origin} computes {what}: {calls} calls")
    return lines


def _operator(what: str) -> OpKey:
    """``Op`` of ai.onnx or ``domain::Op``."""
    domain, _, op = what.rpartition("::")
    if not op or not op[0].isupper():
        close = get_close_matches(what, list(registry.KERNELS), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(registry.KERNELS)}"
        raise KernelSourceError(
            f"{what!r} is no kernel of the library ({hint}) and no operator, such as Gelu or my.domain::Op"
        )
    return ("" if domain == "ai.onnx" else domain, op)


def library_of(
    kernels: Mapping[str, Binding], ops: Mapping[OpKey, Binding], choices: Path | None, target: Target
) -> Library:
    """choices: a choice file, of which those for this target and for unchanged kernels count."""
    if choices is None:
        return Library(kernels, ops)
    return Library(kernels, ops, _lookup(read_choices(choices), target, [*kernels.values(), *ops.values()]))


def _lookup(
    choices: Iterable[KernelChoice], target: Target, bound: Sequence[Binding]
) -> Callable[[str, Types, Sizes], Sizes | None]:
    digests = {binding.name: _digest(binding) for binding in bound}
    table: dict[tuple[str, tuple[str, ...], str], Sizes] = {}
    for choice in choices:
        digest = digests.get(choice.kernel)
        if digest is None and choice.kernel in registry.KERNELS:
            digest = find(choice.kernel).digest
        if choice.target == target.name and choice.digest == digest:
            table[choice.kernel, choice.types, repr(plain_params(choice.params))] = choice.sizes

    def sizes(name: str, types: Types, params: Sizes) -> Sizes | None:
        return table.get((name, tuple(map(type_text, types)), repr(plain_params(params))))

    return sizes


def _digest(binding: Binding) -> str:
    return FoundKernel(binding.name, binding.name, binding.kernel, binding.origin, None, lambda: iter(())).digest
