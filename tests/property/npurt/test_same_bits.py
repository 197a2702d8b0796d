"""The device's arithmetic gives the same bits for other BLAS kernels, thread counts and instruction sets."""

import os
import subprocess
import sys

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

SCRIPT = """
import hashlib
import numpy as np
from npurt import numerics
from npurt.abi.dtypes import DType

rng = np.random.default_rng(0)
digest = hashlib.sha256()
x = rng.normal(size=30000).astype(np.float32) * 8
x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, 3e38, -1e-6]
for name in ("exp", "exp2", "log", "sin", "cos", "tanh", "sigmoid", "erf", "rsqrt", "recip", "sqrt"):
    digest.update(np.nan_to_num(getattr(numerics, name)(x), nan=7.0).tobytes())
digest.update(np.nan_to_num(numerics.pow(np.abs(x), x[::-1]), nan=7.0).tobytes())
for dtype in (DType.F16, DType.BF16, DType.I8, DType.I32):
    digest.update(numerics.store(x, dtype).tobytes())
half = lambda *shape: numerics.round_f16(rng.normal(size=shape).astype(np.float32))
for m, n, k in ((1, 576, 576), (7, 64, 1536), (128, 100, 64), (33, 17, 129)):
    a, b = half(m, k), half(n, k)
    digest.update(numerics.mma_exact(a, b).tobytes())
    digest.update(numerics.mma_exact(a, np.ascontiguousarray(b.T), b_kn=True).tobytes())
rows = numerics.exp(half(64, 640))
for axis in (0, 1):
    digest.update(numerics.sum_exact(rows, axis).tobytes())
    digest.update(numerics.cumsum(rows, axis).tobytes())
    digest.update(numerics.reduce_max(rows, axis).tobytes())
print(digest.hexdigest())
"""
WIDE = " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))  # all that this NumPy would use here
HOSTS = {
    "one thread": {"OPENBLAS_NUM_THREADS": "1"},
    "two threads": {"OPENBLAS_NUM_THREADS": "2"},
    "Haswell kernels": {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "2"},
    "Nehalem kernels": {"OPENBLAS_CORETYPE": "Nehalem", "OPENBLAS_NUM_THREADS": "1"},
    "baseline instructions": {"NPY_DISABLE_CPU_FEATURES": WIDE, "OPENBLAS_NUM_THREADS": "1"},
}


def digest(environment: dict[str, str]) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("OPENBLAS", "NPY_"))}
    clean["PYTHONPATH"] = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def plain() -> str:
    return digest({})


@pytest.mark.parametrize("environment", HOSTS.values(), ids=HOSTS)
def test_same_bits(environment: dict[str, str], plain: str):
    assert digest(environment) == plain
