"""npurt: loads an npuc blob, relocates it and runs it on a simulated NPU. Needs NumPy alone."""

__version__ = "0.1.0"
