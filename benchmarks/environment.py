"""What a measurement starts from. Nothing here imports NumPy: its BLAS reads the variables when it is loaded."""

from __future__ import annotations

import os
import sys

FORCING = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
THREADS = "OPENBLAS_NUM_THREADS"


def as_found(threads: int) -> None:
    """BLAS chooses its kernels and block sizes by the processor alone, in this process and those that it starts.

    RuntimeError where NumPy is loaded already.
    """
    if "numpy" in sys.modules:
        raise RuntimeError("NumPy is loaded: its BLAS has read its variables already")
    for name in FORCING:
        os.environ.pop(name, None)
    os.environ[THREADS] = str(threads)
