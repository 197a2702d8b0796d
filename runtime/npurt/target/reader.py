"""Reads a target file (TOML) into a `Target`; every mistake is a TargetError that names file and line."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from npurt.errors import TargetError
from npurt.target.model import Barriers, Engine, MatrixRules, Memory, Route, Target
from npurt.target.quantity import FREQUENCY, RATE, SIZE, TIME, Quantity, parse_quantity

Parser = Callable[[object], Any]


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{value!r} is no positive whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _one_of(*choices: str) -> Parser:
    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is none of {', '.join(choices)}")
        return str(value)

    return parse


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{value!r} is no list of names")
    return tuple(map(_text, value))


def _counts(value: object) -> dict[str, int]:
    if not isinstance(value, dict) or not value:
        raise ValueError(f"{value!r} is no table of counts")
    return {key: _count(count) for key, count in value.items()}


def _quantity(units: dict[str, float]) -> Parser:
    return partial(parse_quantity, units=units)


_REQUIRED = object()
_ZERO_TIME = Quantity(0.0, "ns")
_NO_SIZE = Quantity(0.0, "B")

# key -> (parser, value where the key is missing)
_TOP = {"name": (_text, _REQUIRED), "description": (_text, _REQUIRED), "tiles": (_count, _REQUIRED)}
_MEMORY = {
    "size": (_quantity(SIZE), _REQUIRED),
    "align": (_quantity(SIZE), _REQUIRED),
    "per": (_one_of("device", "tile", "core", "vector core"), _REQUIRED),
    "on_chip": (_flag, _REQUIRED),
}
_ENGINE = {
    "queue": (_text, _REQUIRED),
    "kind": (_one_of("dma", "matrix", "vector"), _REQUIRED),
    "count": (_count, 1),
    "clock": (_quantity(FREQUENCY), _REQUIRED),
    "reads": (_names, _REQUIRED),
    "writes": (_names, _REQUIRED),
    "launch": (_quantity(TIME), _ZERO_TIME),
    "macs_per_cycle": (_counts, {}),
    "bytes_per_cycle": (_count, 0),
    "max_transfer": (_quantity(SIZE), _NO_SIZE),
    "outstanding": (_count, 1),
}
_ROUTE = {
    "engine": (_text, _REQUIRED),
    "rate": (_quantity(RATE), _REQUIRED),
    "latency": (_quantity(TIME), _ZERO_TIME),
}
_BARRIERS = {
    "total": (_count, _REQUIRED),
    "per_tile": (_count, _REQUIRED),
    "slot_count": (_count, _REQUIRED),
    "slot_sum": (_count, _REQUIRED),
}
_MATRIX = {
    "channel_multiple": (_count, _REQUIRED),
    "row_multiple": (_count, _REQUIRED),
    "max_extent": (_count, _REQUIRED),
    "operand_orders": (_names, _REQUIRED),
}
_TABLES = ("memories", "engines", "routes", "barriers", "matrix")


class _File:
    """The text of one file, to find the line of a key for a message."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.lines = path, text.splitlines()

    def error(self, table: str, key: str | None, what: str) -> TargetError:
        """table: dotted name as in a header, "" for the top; key: None where the table as a whole is meant."""
        current, line = "", 1 if not table else 0
        for number, text in enumerate(self.lines, 1):
            header = re.match(r"\s*\[([^\[\]]+)\]", text)
            if header:
                current = header[1].replace('"', "").replace(" ", "")
                if current == table:
                    line = number
            elif current == table and key is not None and re.match(rf"\s*\"?{re.escape(key)}\"?\s*=", text):
                line = number
                break
        place = f"{self.path}:{line}" if line else self.path
        where = f"[{table}] " if table else ""
        return TargetError(f"{place}: {where}{'' if key is None else key + ': '}{what}")


def _table(file: _File, name: str, given: object, schema: Mapping[str, tuple[Parser, Any]]) -> dict[str, Any]:
    """The values of one table by its schema."""
    if not isinstance(given, dict):
        raise file.error(name, None, "a table is due")
    for key in given:
        if key not in schema:
            raise file.error(name, key, f"unknown key; known are {', '.join(schema)}")
    values = {}
    for key, (parse, default) in schema.items():
        if key in given:
            try:
                values[key] = parse(given[key])
            except ValueError as error:
                raise file.error(name, key, str(error)) from None
        elif default is _REQUIRED:
            raise file.error(name, None, f"the key {key!r} is missing")
        else:
            values[key] = default
    return values


def _group(
    file: _File, document: dict[str, Any], name: str, schema: Mapping[str, tuple[Parser, Any]]
) -> dict[str, Any]:
    """A table of tables, in the order of the file."""
    given = document.get(name)
    if not isinstance(given, dict) or not given:
        raise file.error("", None, f"no [{name}.*] table")
    return {key: _table(file, f"{name}.{key}", value, schema) for key, value in given.items()}


def _known(
    file: _File, table: str, key: str | None, names: tuple[str, ...], known: Mapping[str, Any], what: str
) -> None:
    for name in names:
        if name not in known:
            raise file.error(table, key, f"{what} {name!r} is not defined; there are {', '.join(known)}")


def parse_target(path: str, text: str) -> Target:
    """The target of a file's text. path: for messages."""
    file = _File(path, text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"{path}: {error}") from None
    top = _table(file, "", {key: value for key, value in document.items() if key not in _TABLES}, _TOP)
    memories = {
        name: Memory(name, int(row["size"].value), int(row["align"].value), row["per"], row["on_chip"])
        for name, row in _group(file, document, "memories", _MEMORY).items()
    }
    engines = {
        name: _engine(file, name, row, memories) for name, row in _group(file, document, "engines", _ENGINE).items()
    }
    routes = {}
    for name, row in _group(file, document, "routes", _ROUTE).items():
        ends = tuple(name.split("->"))
        if len(ends) != 2:
            raise file.error(f"routes.{name}", None, 'a route is named "source->destination"')
        _known(file, f"routes.{name}", None, ends, memories, "memory")
        _known(file, f"routes.{name}", "engine", (row["engine"],), engines, "engine")
        clock = engines[row["engine"]].clock
        routes[ends[0], ends[1]] = Route(
            ends[0], ends[1], row["engine"], row["rate"].at(clock), row["latency"].at(clock)
        )
    barriers = Barriers(**_table(file, "barriers", document.get("barriers"), _BARRIERS))
    if barriers.per_tile > barriers.total:
        raise file.error("barriers", "per_tile", f"{barriers.per_tile} of {barriers.total} barriers in all")
    matrix = MatrixRules(**_table(file, "matrix", document.get("matrix"), _MATRIX))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Target(top["name"], top["description"], top["tiles"], memories, engines, routes, barriers, matrix, digest)


def _engine(file: _File, name: str, row: dict[str, Any], memories: Mapping[str, Memory]) -> Engine:
    for key in ("reads", "writes"):
        _known(file, f"engines.{name}", key, row[key], memories, "memory")
    clock = row["clock"].value
    return Engine(
        name, row["queue"], row["kind"], row["count"], clock, row["reads"], row["writes"], row["launch"].at(clock),
        row["macs_per_cycle"], row["bytes_per_cycle"], int(row["max_transfer"].value), row["outstanding"],
    )  # fmt: skip


def target_names() -> list[str]:
    """Names of the targets that come with npurt."""
    return sorted(
        entry.name.removesuffix(".toml") for entry in files(__package__).iterdir() if entry.name.endswith(".toml")
    )


def load_target(name: str | Path = "npu40xx") -> Target:
    """The target of that name, or of a file where `name` is a path (ends in .toml). Errors: TargetError."""
    if str(name).endswith(".toml"):
        try:
            return parse_target(str(name), Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise TargetError(f"{name}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise TargetError(f"{name}: no UTF-8 text: {error.reason} at byte {error.start}") from None
    if name not in target_names():
        raise TargetError(
            f"no target {name!r}: there are {', '.join(target_names())}; or give the path of a .toml file"
        )
    file = f"{name}.toml"
    return parse_target(file, files(__package__).joinpath(file).read_text(encoding="utf-8"))
