"""A time that no tiling, order or placement can beat, from the canonical graph and the target alone."""

from npuc.bound.bound import PARTS, Bound, bound_of, bound_record

__all__ = ["PARTS", "Bound", "bound_of", "bound_record"]
