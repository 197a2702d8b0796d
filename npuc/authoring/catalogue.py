"""All kernels that can be named: one record for each form of the library's, and for each kernel of a package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from npuc.authoring.packages import offers
from npuc.authoring.source import find
from npuc.tile import Example, Kernel, TraceCache
from npukernels import registry
from npukernels.forms import FORMS
from npurt.target import load_target, target_names


@dataclass(frozen=True)
class Record:
    """name: what --kernel and the other commands take. form: what its arrays mean. dtypes: of its main arrays. targets:
    machines that have the engines it uses. arrays: the signature. origin: "library", or package and version."""

    name: str
    family: str
    form: str
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]
    arrays: str
    origin: str


def records() -> list[Record]:
    """The library in the order of its forms, then packages by name. Errors: KernelSourceError for a broken package."""
    return [*_library(), *_packages()]


def _library() -> Iterator[Record]:
    traces = TraceCache()
    for form in FORMS:
        spec = registry.get(form.kernel)
        dtypes = tuple(dtype.label for dtype in form.dtypes)
        targets = _targets(spec.kernel, form.example(form.dtypes[0]), traces)
        yield Record(spec.name, spec.family, form.form, dtypes, targets, spec.form, "library")


def _packages() -> Iterator[Record]:
    for name, offered in offers().items():
        found = find(name)
        example = next(found.examples(), None)
        dtypes = () if example is None else tuple(dict.fromkeys(t.dtype.label for t in example.types if t is not None))
        targets = () if example is None else _targets(found.kernel, example, TraceCache())
        summary = (found.kernel.__doc__ or "").strip().splitlines()[:1]
        yield Record(name, "package", " ".join(summary), dtypes, targets, "", offered.origin)


def _targets(kernel: Kernel, example: Example, traces: TraceCache) -> tuple[str, ...]:
    trace = kernel.trace(example.types, example.params, cache=traces)
    engines = {task.engine for template in trace.templates for task in template.tasks}
    return tuple(name for name in target_names() if engines <= set(load_target(name).engines))


def records_json(found: list[Record]) -> list[dict[str, Any]]:
    return [asdict(record) for record in found]


def records_text(found: list[Record]) -> str:
    """One line each: name, element types, form; then how many."""
    width = max(len(record.name) for record in found)
    lines, family = [], ""
    for record in found:
        if record.family != family:
            family = record.family
            lines.append(f"{family}")
        lines.append(f"  {record.name:<{width}}  {' '.join(record.dtypes):<12}  {record.form}")
    targets = dict.fromkeys(target for record in found for target in record.targets)
    return "\n".join([*lines, f"{len(found)} records; targets: {', '.join(targets)}"])
