"""Measurements against other programs; what each command does is in docs/benchmarks.md."""
