"""What has been found out before, kept between runs: one small JSON file for each question, named by its digest.

An answer must follow from its question alone, which therefore names all that it depends on: types, parameters, the
target, and the source texts of the kernels and of the packages that compute it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from npuc import __version__
from npuc.emit.atomic import atomic_file
from npuc.tile import ArrayType


def cache_folder(name: str) -> Path:
    """A folder below ``$XDG_CACHE_HOME/npuc`` or ``~/.cache/npuc``; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "npuc" / name


@dataclass(frozen=True)
class AnswerCache:
    """Answers by question, both JSON objects. The version of npuc is part of every question.

    A file that cannot be read or written is as good as none: the answer is found again.
    """

    folder: Path

    def get(self, question: Mapping[str, Any]) -> dict[str, Any] | None:
        with suppress(OSError, ValueError):
            kept = json.loads(self._path(question).read_bytes())
            if isinstance(kept, dict) and isinstance(kept.get("answer"), dict):
                answer: dict[str, Any] = kept["answer"]
                return answer
        return None

    def put(self, question: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        path = self._path(question)
        text = json.dumps({"question": question, "answer": answer}, sort_keys=True, indent=1)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                file.write(text.encode())

    def _path(self, question: Mapping[str, Any]) -> Path:
        text = json.dumps({"npuc": __version__, **question}, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


@cache
def sources_digest(*packages: str) -> str:
    """SHA-256 of the source texts of packages, with all below them: what they compute changes with no less."""
    digest = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        assert spec is not None and spec.submodule_search_locations, f"{package} is a package"
        for folder in spec.submodule_search_locations:
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def type_text(type_: ArrayType | None) -> str:
    """A type with everything that a trace depends on: ``f16[64, 256] cmx``, with strides where rows have gaps."""
    if type_ is None:
        return "none"
    gaps = "" if _is_dense(type_) else f" strides {list(type_.stride)}"
    return f"{type_} {type_.memory}{gaps}"


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as JSON has them: tuples become lists; what is no number or text is written as Python shows it."""
    return {name: _plain(params[name]) for name in sorted(params)}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _is_dense(type_: ArrayType) -> bool:
    step = type_.dtype.nbytes
    for extent, stride in zip(reversed(type_.shape), reversed(type_.stride), strict=True):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
