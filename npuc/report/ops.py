"""`npuc ops`: which operators npuc compiles, and how, from the tables that the compiler itself works by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx.defs

from npuc.frontend.known import NEWEST_OPSET, OLDEST_OPSET
from npuc.graph import normalise_forms
from npuc.graph.bodies import BODIES
from npuc.graph.evaluate import OPERATORS
from npuc.graph.expand.table import EXPANSIONS
from npuc.graph.nodes import DOMAIN, SHAPE_OPERANDS
from npuc.graph.normalise import RULES as FORMS
from npuc.graph.quantised.table import READERS, REFUSED
from npuc.graph.static_forms import FORMS as STATIC_FORMS
from npuc.lower.expression import ELEMENTWISE
from npuc.lower.limits import LIMITS, message
from npuc.lower.rules.table import ELEMENTWISE_FAMILY, FAMILY_OF, RULES
from npuc.lower.storage import DEVICE_TYPES
from npurt.host.table import HOST_OPS

Key = tuple[str, str]
EVERY_TYPE = "all that the device has"


@dataclass(frozen=True)
class Op:
    """One operator.

    domain: "" is ai.onnx. opsets: the operator sets that have it, of those that npuc reads. ways: how it is done, the
    first that applies first: `way` is one of kernel, written out, definition, rewritten, dequantised, folded, on
    request (--host-ops, where no kernel does it); `engine` what does the work, where a kernel or the host does; `what`
    a line for people. dtypes: element types of its first input.
    limits: what must hold; a node that breaks one is refused with these words.
    """

    domain: str
    name: str
    opsets: str
    ways: tuple[dict[str, str], ...]
    dtypes: str
    limits: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """The operator as a JSON object."""
        return asdict(self) | {"ways": list(self.ways), "limits": list(self.limits)}


def operators() -> list[Op]:
    """Every operator that npuc compiles, by domain and name."""
    rewritten = {("", name) for form in FORMS if form.apply is not normalise_forms.other_meaning for name in form.ops}
    known = {
        *RULES, *(("", name) for name in (*ELEMENTWISE, *BODIES, *STATIC_FORMS)), *EXPANSIONS, *rewritten,
        *(key for key, reader in READERS.items() if reader not in REFUSED),
        *(("", name) for name in (*HOST_OPS, *(name for name in OPERATORS if name in ALWAYS_FOLDED))),
    }  # fmt: skip
    done = [(key, tuple(_ways(key))) for key in sorted(known)]
    first: dict[Key, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        first[key] = min(first.get(key, schema.since_version), schema.since_version)
    return [Op(*key, _opsets(first.get(key)), ways, _dtypes(key), tuple(_limits(key))) for key, ways in done if ways]


ALWAYS_FOLDED = ("Constant", "ConstantOfShape", "Range", "Shape", "Size", "NonZero")
"""Operators that are nothing but folded: what they give follows from shapes and constants, or the model is refused."""


def _ways(key: Key) -> Iterator[dict[str, str]]:
    domain, name = key
    if key in EXPANSIONS:
        yield _way("written out", "", _first_line(EXPANSIONS[key]))
    for form in FORMS:
        if domain == "" and name in form.ops and form.apply is not normalise_forms.other_meaning:
            yield _way("rewritten", "", f"sets {form.first} to {form.last}: {_first_line(form.apply)}")
    if domain == "" and name in STATIC_FORMS:
        yield _way("written out", "", _first_line(STATIC_FORMS[name]))
    if key in READERS and READERS[key] not in REFUSED:
        yield _way("dequantised", "", _first_line(READERS[key]))
    if domain == "" and name in BODIES:
        yield _way("definition", "", f"the standard's function body{BODY_CASES.get(BODIES[name].__name__, '')}")
    if domain == "" and name in ELEMENTWISE:
        yield _way("kernel", ELEMENTWISE_FAMILY.engine, ELEMENTWISE_FAMILY.why)
    elif key in RULES:
        yield _way("kernel", FAMILY_OF[key].engine, f"{FAMILY_OF[key].why}: {_first_line(RULES[key])}")
    if domain == "" and name in OPERATORS:
        yield _way("folded", "", "computed by the compiler where its inputs are constants")
    if domain == "" and name in HOST_OPS:
        yield _way("on request", "host", f"where no kernel takes it and --host-ops asks for it, {HOST_OPS[name].what}")


BODY_CASES = {"_not_over_the_last_axis": ", over other axes than the last or with further outputs"}


def _way(way: str, engine: str, what: str) -> dict[str, str]:
    return {"way": way, "engine": engine, "what": what}


def _first_line(function: Any) -> str:
    """The first sentence of a docstring."""
    text = " ".join((function.__doc__ or "").split())
    return text.split(". ")[0].rstrip(".")


def _opsets(first: int | None) -> str:
    """The sets between the oldest and the newest that npuc reads, from the first that has the operator on."""
    return "any" if first is None else f"{max(first, OLDEST_OPSET)} to {NEWEST_OPSET}"


def _dtypes(key: Key) -> str:
    """Element types of the first input that both the standard and the device have."""
    domain, name = key
    if domain != "" or not onnx.defs.has(name):
        return "floats"
    schema = onnx.defs.get_schema(name)
    texts = schema.inputs[0].types if schema.inputs else set()
    codes = {text[len("tensor(") : -1] for text in texts if text.startswith("tensor(")}
    held = sorted(code for code in codes if code in DEVICE_TYPES)
    return EVERY_TYPE if len(held) == len(DEVICE_TYPES) else ", ".join(held) or "none"


def _limits(key: Key) -> Iterator[str]:
    domain, name = key
    for check in LIMITS.get(key, ()):
        yield message(check)
    if domain == "" and name in SHAPE_OPERANDS and onnx.defs.has(name):
        inputs = onnx.defs.get_schema(name).inputs
        names = [inputs[place].name for place in SHAPE_OPERANDS[name] if place < len(inputs)]
        if names:
            yield f"{', '.join(names)}: a constant once all sizes are fixed, or given by --value"
    if domain == DOMAIN:
        yield "made by npuc itself, not read from a model"


def text(ops: Sequence[Op]) -> str:
    """The table for people: a line for an operator, with what does the work."""
    width = max(len(_name(op)) for op in ops)
    lines = [f"{_name(op):{width}}  {_how(op)}" for op in ops]
    return "\n".join([*lines, f"{len(ops)} operators; `npuc ops --op NAME` says what one asks for"]) + "\n"


def _name(op: Op) -> str:
    return f"{op.domain}.{op.name}" if op.domain else op.name


def _how(op: Op) -> str:
    return ", ".join(f"{way['engine']} {way['way']}".strip() for way in op.ways)


def details(op: Op) -> str:
    """Everything about one operator."""
    lines = [_name(op), f"  operator sets  {op.opsets}", f"  element types  {op.dtypes}"]
    for way in op.ways:
        lines.append(f"  {way['way']:13}  {way['engine'] + ': ' if way['engine'] else ''}{way['what']}")
    lines += [f"  limit          {limit}" for limit in op.limits]
    return "\n".join(lines) + "\n"
