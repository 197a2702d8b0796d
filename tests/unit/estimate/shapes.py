"""Small decoders without weights, and their subjects."""

from __future__ import annotations

from pathlib import Path

from npuc.estimate.subject import Sizes, Subject, subject
from npuc.models import DecoderShape, write_hollow
from npuc.models.shape import Experts

TINY = DecoderShape(64, 32, 48, 2, 4, 2, 8, positions=64, theta=1e4, epsilon=1e-6)
UNTIED = DecoderShape(64, 32, 48, 2, 4, 2, 8, positions=64, theta=1e4, epsilon=1e-6, tied=False)
MIXED = DecoderShape(64, 32, 24, 2, 4, 2, 8, positions=256, theta=1e4, epsilon=1e-6, experts=Experts(16, 2))


def hollow(folder: Path, shape: DecoderShape) -> Path:
    write_hollow(shape, folder, force=False)
    return folder


def subject_of(folder: Path, shape: DecoderShape, **sizes: int) -> Subject:
    return subject(hollow(folder, shape), Sizes(**sizes))
