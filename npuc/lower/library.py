"""The kernels that a compilation may use: those of the library, and those that the caller put in their place.

A binding says ``WHAT=KERNEL``. WHAT is the name of a library kernel, such as ``attention``: its calls go to the
caller's kernel, with the same arrays. Or it is an operator, ``Gelu`` or ``my.domain::Op``: each of its nodes becomes a
call with the node's inputs, then its outputs, and its attributes as parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from npuc.tile import ArrayType, Kernel
from npukernels import registry
from npukernels.registry import KernelSpec

Types = Sequence[ArrayType | None]
Sizes = Mapping[str, Any]
OpKey = tuple[str, str]


class BindingError(Exception):
    """A kernel that cannot take the calls it is bound to: what it gets, what it takes, what would work."""


@dataclass(frozen=True)
class Binding:
    """A caller's kernel. name, origin: for reports. candidates: tile sizes for (types, params), or None where all its
    sizes have defaults."""

    name: str
    origin: str
    kernel: Kernel
    candidates: Callable[[Types, Sizes], Iterable[Sizes]] | None


@dataclass(frozen=True)
class Library:
    """kernels: bindings by name of the library kernel; ops: by (domain, operator). sizes: chosen tile sizes for a
    kernel, its types and parameters, to be tried before others."""

    kernels: Mapping[str, Binding] = field(default_factory=dict)
    ops: Mapping[OpKey, Binding] = field(default_factory=dict)
    sizes: Callable[[str, Types, Sizes], Sizes | None] = lambda name, types, params: None

    def spec(self, call: str) -> KernelSpec:
        """The kernel of a call. Operators that are bound have calls named ``domain::Op``."""
        binding = self.binding(call)
        return registry.get(call) if binding is None else _spec_of(binding, call)

    def binding(self, call: str) -> Binding | None:
        """The caller's kernel for the calls of this name, None where there is none."""
        domain, colons, op = call.rpartition("::")
        if colons:
            return self.ops[domain, op]
        known = registry.get(call).name
        return self.kernels.get(known)

    def fitted(self, call: str, arrays: Sequence[Any], params: Sizes) -> tuple[list[Any], dict[str, Any]]:
        """The arrays and parameters of a call as its kernel takes them.

        A parameter that the caller's kernel does not have may be left out where it says what the library's kernel does
        anyway; so may absent arrays at the end. Errors: BindingError.
        """
        binding = self.binding(call)
        if binding is None:
            return list(arrays), dict(params)
        return _fitted(binding, call, list(arrays), dict(params))


def call_name(key: OpKey) -> str:
    """The name of the calls of a bound operator."""
    return f"{key[0]}::{key[1]}"


def _spec_of(binding: Binding, call: str) -> KernelSpec:
    def candidates(types: Types, params: Sizes, free: int | None = None) -> Iterator[dict[str, Any]]:
        if binding.candidates is None:
            _check_all_have_defaults(binding, params)
            yield {}
            return
        for sizes in binding.candidates(types, params):
            yield dict(sizes)

    return KernelSpec(binding.name, binding.kernel, "author's", call, candidates)


def _check_all_have_defaults(binding: Binding, params: Sizes) -> None:
    missing = [name for name, has in _parameters(binding.kernel).items() if not has and name not in params]
    if missing:
        raise BindingError(
            f"kernel {binding.name} of {binding.origin}: nobody says what {', '.join(missing)} shall be; give "
            "defaults, or offer candidates(types, params) beside the kernel"
        )


def _parameters(kernel: Kernel) -> dict[str, bool]:
    """The static parameters of a kernel, and whether each has a default."""
    signature = inspect.signature(kernel.function)
    empty = inspect.Parameter.empty
    keywords = (p for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY)
    return {parameter.name: parameter.default is not empty for parameter in keywords}


def _fitted(binding: Binding, call: str, arrays: list[Any], params: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    signature = inspect.signature(binding.kernel.function)
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        most = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        while len(arrays) > most and arrays[-1] is None:
            arrays.pop()
        if len(arrays) > most:
            raise BindingError(
                f"kernel {binding.name} of {binding.origin} takes {most} arrays, the call has {len(arrays)} "
                f"({call}{_form(call)})"
            )
    taken = _parameters(binding.kernel)
    neutral = {} if "::" in call else _defaults(registry.get(call).kernel)
    extra = {name: value for name, value in params.items() if name not in taken}
    wrong = {name: value for name, value in extra.items() if name not in neutral or neutral[name] != value}
    if wrong:
        given = ", ".join(f"{name}={value!r}" for name, value in wrong.items())
        raise BindingError(
            f"kernel {binding.name} of {binding.origin} has no parameter for {given}, which the call needs; "
            "add it after * in the kernel's signature"
        )
    return arrays, {name: value for name, value in params.items() if name in taken}


def _form(call: str) -> str:
    return "" if "::" in call else f": {registry.get(call).form}"


def _defaults(kernel: Kernel) -> dict[str, Any]:
    parameters = inspect.signature(kernel.function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
