"""What NumPy's BLAS says about itself, and what is done where it says nothing."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from npurt import blas


def test_the_kernel_is_the_one_that_was_forced() -> None:
    if blas.loaded() is None or "scipy-openblas" not in str(np.show_config(mode="dicts")):
        pytest.skip("needs the OpenBLAS of NumPy's wheels")
    code = "from npurt import blas; print(blas.loaded())"
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    if np.show_config(mode="dicts")["Build Dependencies"]["blas"]["openblas configuration"].find("Haswell") >= 0:
        environment["OPENBLAS_CORETYPE"] = "Haswell"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "Blas(kernel='Haswell', threads=1)\n"


def test_another_blas_is_unknown_and_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_NAMES", ("no_such_{}",))
    monkeypatch.delenv(blas.THREADS_VARIABLE, raising=False)
    assert blas.loaded() is None
    blas.one_thread()
