"""A time that no tiling, order or placement can beat, from the canonical graph and the target alone."""

from npuc.bound.bound import bound_of, bound_record
from npuc.bound.canonical import PARTS, Bound, Canonical

__all__ = ["PARTS", "Bound", "Canonical", "bound_of", "bound_record"]
