"""Recipes that write models as an exporter would: fetched with weights and tokenizer, or from their sizes alone."""

from npuc.models.configuration import read_shape
from npuc.models.errors import PullError
from npuc.models.hollow import write_hollow
from npuc.models.pull import Pulled, pull
from npuc.models.recipes import RECIPES, Recipe
from npuc.models.shape import DecoderShape
from npuc.models.shapes import SHAPES, NamedShape

__all__ = [
    "RECIPES",
    "SHAPES",
    "DecoderShape",
    "NamedShape",
    "PullError",
    "Pulled",
    "Recipe",
    "pull",
    "read_shape",
    "write_hollow",
]
