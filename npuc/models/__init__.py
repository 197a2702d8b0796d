"""Recipes that fetch models and write them as an exporter would: a folder with model.onnx and its tokenizer."""

from npuc.models.errors import PullError
from npuc.models.pull import Pulled, pull
from npuc.models.recipes import RECIPES, Recipe

__all__ = ["RECIPES", "PullError", "Pulled", "Recipe", "pull"]
