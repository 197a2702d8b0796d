"""Facts that stand beside a model in its JSON files: how long it may be, and which tokens begin and end an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from npuc.frontend.errors import ModelRefused

CONFIG, GENERATION = "config.json", "generation_config.json"


def max_positions(assets: Mapping[str, bytes]) -> int | None:
    """Positions that the model was made for, None where config.json does not say it. Raises ModelRefused."""
    found = read_object(assets, CONFIG).get("max_position_embeddings")
    if found is None or (type(found) is int and found > 0):
        return found
    raise ModelRefused([f"'max_position_embeddings' is {found!r}; a whole number above 0 is due"], CONFIG)


def end_tokens(assets: Mapping[str, bytes]) -> tuple[list[int], int | None]:
    """(ids that end an answer, start id or None) from generation_config.json, else config.json. Raises ModelRefused."""
    found, source = {}, {}
    for name in (CONFIG, GENERATION):
        content = read_object(assets, name)
        found.update(content)
        source.update(dict.fromkeys(content, name))
    stops, start = found.get("eos_token_id"), found.get("bos_token_id")
    ids = stops if isinstance(stops, list) else [] if stops is None else [stops]
    for key, values in (("eos_token_id", ids), ("bos_token_id", [] if start is None else [start])):
        wrong = [value for value in values if type(value) is not int or not 0 <= value < 1 << 31]
        if wrong:
            raise ModelRefused([f"{key!r} holds {wrong[0]!r}, which is no token id"], source[key])
    return ids, start


def read_object(assets: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """The object of a JSON file without its nulls; empty where there is no such file. Raises ModelRefused."""
    if name not in assets:
        return {}
    try:
        found = json.loads(assets[name])
    except (ValueError, RecursionError) as error:
        raise ModelRefused([f"no JSON: {str(error) or 'nested too deep'}"], name) from error
    if not isinstance(found, dict):
        raise ModelRefused(["no JSON object"], name)
    return {key: value for key, value in found.items() if value is not None}
