"""The tables of a target file: which keys each has, how a value reads, and what holds where a key is missing.

A number is written `[value, "source"]`; one without a source reads as assumed. Sizes, times and rates are texts with a
unit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from npurt.abi.dtypes import DType
from npurt.target.model import OP_CLASSES
from npurt.target.quantity import ABSOLUTE_RATE, FREQUENCY, RATE, SIZE, TIME, Quantity, parse_quantity

REQUIRED = object()


@dataclass(frozen=True)
class Field:
    """One key. parse: value to what the model holds, ValueError else. default: REQUIRED, or for a missing key.

    number: the value may carry its source. keys: of a table of numbers, the keys that it may have.
    """

    parse: Callable[[object], Any]
    default: Any = REQUIRED
    number: bool = False
    keys: tuple[str, ...] = ()


Schema = Mapping[str, Field]


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r} is no positive whole number")
    return value


def _amount(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ValueError(f"{value!r} is no number of 0 or more")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _one_of(*choices: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is none of {', '.join(choices)}")
        return str(value)

    return parse


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{value!r} is no list of names")
    return tuple(map(_text, value))


def _types(value: object) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        if name not in _TYPES:
            raise ValueError(f"{name!r} is no element type; there are {', '.join(_TYPES)}")
    return names


def _changes(value: object) -> tuple[str, ...]:
    names = _names(value)
    for name in names:
        if len(name.split("->")) != 2 or not all(name.split("->")):
            raise ValueError(f'{name!r} is no change of layout; write "nd->nz"')
    return names


def _homes(value: object) -> dict[str, tuple[str, str]]:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{value!r} is no table of operands")
    for name, home in value.items():
        if not isinstance(home, str) or len(home.split(":")) != 2 or not all(home.split(":")):
            raise ValueError(f'operand {name}: {home!r} is no home; write "memory:layout"')
    return {name: (home.split(":")[0], home.split(":")[1]) for name, home in value.items()}


def number(parse: Callable[[object], Any], default: Any = REQUIRED) -> Field:
    return Field(parse, default, number=True)


def _quantity(units: dict[str, float], default: Any = REQUIRED, *, positive: bool = False) -> Field:
    return number(partial(parse_quantity, units=units, positive=positive), default)


_SIZE, _RATE = partial(_quantity, SIZE), partial(_quantity, RATE, positive=True)
_NO_TIME, _NO_SIZE, _NO_RATE = Quantity(0.0, "ns"), Quantity(0.0, "B"), Quantity(0.0, "GB/s")
_TYPES = tuple(dtype.label for dtype in DType)

TOP: Schema = {"name": Field(_text), "description": Field(_text), "tiles": number(_count)}
MEMORY: Schema = {
    "size": _SIZE(positive=True),
    "align": _SIZE(positive=True),
    "per": Field(_one_of("device", "tile", "core", "vector core")),
    "on_chip": Field(_flag),
    "banks": number(_count, 1),
    "bank_groups": number(_count, 1),
    "bank_row": _SIZE(_NO_SIZE),
    "bank_rate": _quantity(ABSOLUTE_RATE, _NO_RATE, positive=True),
}
ENGINE: Schema = {
    "queue": Field(_text),
    "kind": Field(_one_of("dma", "matrix", "vector", "scalar")),
    "count": number(_count, 1),
    "gang": Field(_flag, False),
    "clock": _quantity(FREQUENCY, positive=True),
    "reads": Field(_names),
    "writes": Field(_names),
    "launch": _quantity(TIME, _NO_TIME),
    "macs_per_cycle": Field(_count, {}, number=True, keys=_TYPES),
    "operand_rate": _RATE(_NO_RATE),
    "codes": Field(_types, ()),
    "bytes_per_cycle": number(_count, 0),
    "cycles": Field(_amount, {}, number=True, keys=OP_CLASSES),
    "instruction_latency": _quantity(TIME, _NO_TIME),
    "destinations": number(_count, 1),
    "max_transfer": _SIZE(_NO_SIZE),
    "outstanding": number(_count, 1),
    "gather_rows": number(_count, 0),
    "fill_rate": _RATE(_NO_RATE),
    "code": _SIZE(_NO_SIZE),
    "function_code": _SIZE(_NO_SIZE),
}
ROUTE: Schema = {
    "engine": Field(_text),
    "rate": _RATE(),
    "latency": _quantity(TIME, _NO_TIME),
    "granule": _SIZE(Quantity(1.0, "B"), positive=True),
    "pool": Field(_text, ""),
    "layouts": Field(_changes, ()),
}
POOL: Schema = {"rate": _quantity(ABSOLUTE_RATE, positive=True), "per": Field(_one_of("device", "tile", "core"))}
OPERANDS: Schema = {
    "engine": Field(_text),
    "homes": Field(_homes),
    "accumulator": Field(_text, ""),
    "accumulates": Field(_one_of(*_TYPES), ""),
}
SYNC: Schema = {
    "clock": _quantity(FREQUENCY, positive=True),
    "issue": _quantity(TIME),
    "latency": _quantity(TIME),
}
BARRIERS: Schema = {key: number(_count) for key in ("total", "per_tile", "slot_count", "slot_sum")}
MATRIX: Schema = {
    "channel_multiple": number(_count),
    "row_multiple": number(_count),
    "max_extent": number(_count),
    "operand_orders": Field(_names),
}
GROUPS = {"memories": MEMORY, "engines": ENGINE, "routes": ROUTE, "pools": POOL, "operands": OPERANDS}
SINGLE = {"sync": SYNC, "barriers": BARRIERS, "matrix": MATRIX}
