"""Subjects of small decoders, built once."""

from __future__ import annotations

import pytest

from npuc.estimate.subject import Subject
from tests.unit.estimate.shapes import MIXED, TINY, subject_of


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(tmp_path_factory.mktemp("hollow") / "tiny", TINY, prompt=40, tokens=24, chunk=16)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return subject_of(tmp_path_factory.mktemp("hollow") / "mixed", MIXED)
