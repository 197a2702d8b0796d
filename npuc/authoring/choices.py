"""Choice files: tile sizes that `npuc kernel tune` found, for the compiler to take.

{"format": 1, "choices": [{"kernel": "softmax", "target": "npu40xx", "types": ["f16[64, 256] cmx", ...],
 "params": {"scale": 0.125}, "sizes": {"tile": [16, 256]}, "seconds": 1.2e-05}, ...]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuc.answers import plain_params
from npuc.authoring.errors import KernelSourceError
from npuc.emit.atomic import atomic_file

FORMAT = 1


@dataclass(frozen=True)
class KernelChoice:
    """Tile sizes for one kernel over arrays of these types. digest: of the kernel's source. params: fixed ones."""

    kernel: str
    digest: str
    target: str
    types: tuple[str, ...]
    params: Mapping[str, Any]
    sizes: Mapping[str, Any]
    seconds: float


def read_choices(path: Path) -> list[KernelChoice]:
    """Errors: KernelSourceError for a file that cannot be read or is no choice file."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise KernelSourceError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise KernelSourceError(f"{path} is no choice file: it is not JSON ({error})") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("choices"), list):
        raise KernelSourceError(f"{path} is no choice file of format {FORMAT}; `npuc kernel tune --save` writes them")
    return [_choice(path, number, row) for number, row in enumerate(data["choices"])]


def write_choices(path: Path, choices: Sequence[KernelChoice]) -> None:
    """The file, with these choices in the place of those for the same question that it holds already."""
    kept = {_question(choice): choice for choice in (read_choices(path) if path.exists() else [])}
    kept.update({_question(choice): choice for choice in choices})
    rows = [_row(choice) for _, choice in sorted(kept.items())]
    with atomic_file(path) as file:
        file.write(json.dumps({"format": FORMAT, "choices": rows}, indent=1).encode() + b"\n")


def _question(choice: KernelChoice) -> str:
    return json.dumps([choice.kernel, choice.target, choice.types, plain_params(choice.params)])


def _row(choice: KernelChoice) -> dict[str, Any]:
    return {
        "kernel": choice.kernel, "digest": choice.digest, "target": choice.target, "types": list(choice.types),
        "params": plain_params(choice.params), "sizes": plain_params(choice.sizes), "seconds": choice.seconds,
    }  # fmt: skip


_FIELDS = {"kernel": str, "digest": str, "target": str, "types": list, "params": dict, "sizes": dict, "seconds": float}


def _choice(path: Path, number: int, row: Any) -> KernelChoice:
    for name, kind in _FIELDS.items():
        if not isinstance(row, dict) or not isinstance(row.get(name), kind):
            raise KernelSourceError(f"{path}, choice {number}: {name!r} must be a {kind.__name__}")
    sizes = {name: tuple(value) if isinstance(value, list) else value for name, value in row["sizes"].items()}
    return KernelChoice(
        row["kernel"], row["digest"], row["target"], tuple(row["types"]), row["params"], sizes, row["seconds"]
    )
