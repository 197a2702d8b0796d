"""Sparse attention of many queries on one core of ascend950, laid out by hand, and timed."""
