"""The kernel library of npuc, written in the tile language alone."""
