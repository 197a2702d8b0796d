"""Kernels for npuc, found through the entry-point group npuc.kernels."""
