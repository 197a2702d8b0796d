"""Weights that a file stores as codes of a few bits: constants of the graph whose numbers are computed when read."""
