"""The text of a target file: tables read by their schema, and errors that name the line."""

from __future__ import annotations

import json
import re
from typing import Any

from npurt.errors import TargetError
from npurt.target.model import Figure
from npurt.target.schema import REQUIRED, Field, Schema


class Source:
    """One file. figures: every number read so far, by its dotted key."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self._lines = path, text.splitlines()
        self.figures: dict[str, Figure] = {}

    def error(self, table: str, key: str | None, what: str) -> TargetError:
        """table: dotted name as in a header, "" for the top; key: None where the table as a whole is meant. At the top
        a key may be that of a table."""
        current, line = "", 1 if not table else 0
        for number, text in enumerate(self._lines, 1):
            header = re.match(r"\s*\[([^\[\]]+)\]", text)
            if header:
                current = header[1].replace('"', "").replace(" ", "")
                if current == table:
                    line = number
                if not table and key is not None and current.split(".")[0] == key:
                    line = number
                    break
            elif current == table and key is not None and re.match(rf"\s*\"?{re.escape(key)}\"?\s*[=.]", text):
                line = number
                break
        place = f"{self.path}:{line}" if line else self.path
        where = f"[{table}] " if table else ""
        return TargetError(f"{place}: {where}{'' if key is None else key + ': '}{what}")

    def table(self, name: str, given: object, schema: Schema) -> dict[str, Any]:
        """The values of one table by its schema."""
        if not isinstance(given, dict):
            raise self.error(name, None, "a table is due")
        for key in given:
            if key not in schema:
                raise self.error(name, key, f"unknown key; known are {', '.join(schema)}")
        values = {}
        for key, field in schema.items():
            if key in given:
                values[key] = self._many(name, key, given[key], field) if field.keys else self._one(
                    name, key, given[key], field
                )  # fmt: skip
            elif field.default is REQUIRED:
                raise self.error(name, None, f"the key {key!r} is missing")
            else:
                values[key] = field.default
        return values

    def _many(self, name: str, key: str, given: object, field: Field) -> dict[str, Any]:
        """A table of numbers, written with dotted keys."""
        if not isinstance(given, dict) or not given:
            raise self.error(name, key, f"{given!r} is no table of numbers; write {key}.{field.keys[0]} = ...")
        for part in given:
            if part not in field.keys:
                raise self.error(name, f"{key}.{part}", f"unknown; known are {', '.join(field.keys)}")
        return {part: self._one(name, f"{key}.{part}", value, field) for part, value in given.items()}

    def _one(self, name: str, key: str, given: object, field: Field) -> Any:
        value, source = given, ""
        if field.number and isinstance(given, list):
            if len(given) != 2 or not isinstance(given[1], str) or not given[1]:
                raise self.error(name, key, 'a number with its source is due, as [1, "where from"]')
            value, source = given
        try:
            parsed = field.parse(value)
        except ValueError as error:
            raise self.error(name, key, str(error)) from None
        if field.number:
            dotted = f"{name}.{key}" if name else key
            self.figures[dotted] = Figure(dotted, value if isinstance(value, str) else json.dumps(value), source)
        return parsed
