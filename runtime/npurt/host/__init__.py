"""Operators that the host computes between the entries of a program, where the user asked for it."""
