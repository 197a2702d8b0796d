"""Fusion rules: each finds a place by structure, proves by evaluation what it computes, and rewrites it."""
