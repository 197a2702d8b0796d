"""What has been found out before, kept between runs: one small JSON file for each question, named by its digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from npuc import __version__
from npuc.emit.atomic import atomic_file


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
