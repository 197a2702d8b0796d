"""Elementary functions against float64 and mpmath references: error in ulp of float32, and the limits."""

import mpmath
import numpy as np
import pytest

from npurt import numerics

INF, NAN = np.inf, np.nan
TINY = np.float32(1e-45)  # the smallest subnormal


def ulp_error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest distance of float32 results to float64 references, in float32 ulps at the reference."""
    size = np.maximum(np.abs(want), np.finfo(np.float32).smallest_normal)
    ulp = 2.0 ** (np.floor(np.log2(size)) - 23)
    return float(np.max(np.abs(got.astype(np.float64) - want) / ulp))


def spread(low: float, high: float, count: int = 60_000) -> np.ndarray:
    rng = np.random.default_rng(7)
    linear = rng.uniform(low, high, count)
    small = np.clip(np.sign(linear) * 2.0 ** rng.uniform(-30, 0, count), low, high)
    return np.concatenate([linear, small]).astype(np.float32)


def mp_vector(function, x: np.ndarray) -> np.ndarray:
    with mpmath.workdps(60):
        return np.array([float(function(mpmath.mpf(float(value)))) for value in x])


# float64 references of the C library are good to about 2^-52, far below what is measured here
POSITIVE = (2.0 ** np.random.default_rng(1).uniform(-149, 128, 50_000)).astype(np.float32)
LIBM_CASES = [
    ("exp", np.exp, spread(-103, 88.7)),
    ("exp2", np.exp2, spread(-149, 127.9)),
    ("tanh", np.tanh, spread(-12, 12)),
    ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), spread(-88, 88)),
    ("log", np.log, np.abs(spread(1e-3, 4))),
    ("log", np.log, POSITIVE),
    ("rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE),
    ("sin", np.sin, spread(-8, 8)),
    ("cos", np.cos, spread(-8, 8)),
    ("sin", np.sin, spread(-1e6, 1e6)),
    ("cos", np.cos, spread(-1e6, 1e6)),
]


@pytest.mark.parametrize(("name", "reference", "x"), LIBM_CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(LIBM_CASES)])
def test_error_is_below_0501_ulp(name, reference, x):
    assert ulp_error(getattr(numerics, name)(x), reference(x.astype(np.float64))) < 0.501


def test_erf_error_is_below_0501_ulp():
    x = np.concatenate([np.linspace(-4.5, 4.5, 1501), 2.0 ** np.linspace(-40, 1, 301)]).astype(np.float32)
    assert ulp_error(numerics.erf(x), mp_vector(mpmath.erf, x)) < 0.501


def test_sine_of_any_finite_argument():
    rng = np.random.default_rng(3)
    x = (2.0 ** rng.uniform(20, 128, 600) * rng.choice([-1, 1], 600)).astype(np.float32)
    x = np.concatenate([x, np.float32([3.4028235e38, 2.0**100, 1048577.0])])
    assert ulp_error(numerics.sin(x), mp_vector(mpmath.sin, x)) < 0.501
    assert ulp_error(numerics.cos(x), mp_vector(mpmath.cos, x)) < 0.501


def test_sine_near_multiples_of_pi():
    x = (np.arange(1, 60_000) * np.pi).astype(np.float32)
    assert ulp_error(numerics.sin(x), np.sin(x.astype(np.float64))) < 0.501


def test_pow_against_float64():
    rng = np.random.default_rng(5)
    x = (2.0 ** rng.uniform(-10, 10, 40_000)).astype(np.float32)
    y = rng.uniform(-12, 12, 40_000).astype(np.float32)
    want = x.astype(np.float64) ** y.astype(np.float64)
    inside = (want < 3e38) & (want > 1e-37)
    assert inside.sum() > 30_000
    assert ulp_error(numerics.pow(x, y)[inside], want[inside]) < 0.501


def test_pow_of_integers_is_exact():
    base = np.arange(-20, 21, dtype=np.float32)
    for exponent in (0, 1, 2, 3, 4):
        np.testing.assert_array_equal(numerics.pow(base, np.float32(exponent)), base**exponent)


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (x, y)
        for x in (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, -0.5, INF, -INF, NAN)
        for y in (0.0, 1.0, -1.0, 2.0, -3.0, 0.5, INF, -INF, NAN)
    ],
)
def test_pow_special_cases_are_those_of_c99(x: float, y: float):
    with np.errstate(all="ignore"):
        want = np.float64(x) ** np.float64(y)
    got = numerics.pow(np.float32(x), np.float32(y))
    np.testing.assert_array_equal(got, np.float32(want))
    if not np.isnan(want):
        assert np.signbit(got) == np.signbit(want)


LIMITS = [
    ("exp", [INF, -INF, NAN, 0.0, -0.0, 200.0, -200.0], [INF, 0, NAN, 1, 1, INF, 0]),
    ("exp2", [INF, -INF, NAN, 0.0, 128.0, -149.0, -151.0, 10.0], [INF, 0, NAN, 1, INF, TINY, 0, 1024]),
    ("log", [INF, -INF, NAN, 0.0, -0.0, -1.0, 1.0], [INF, NAN, NAN, -INF, -INF, NAN, 0]),
    ("tanh", [INF, -INF, NAN, 0.0, TINY, 50.0], [1, -1, NAN, 0, TINY, 1]),
    ("sigmoid", [INF, -INF, NAN, 0.0, 500.0, -500.0], [1, 0, NAN, 0.5, 1, 0]),
    ("erf", [INF, -INF, NAN, 0.0, 9.0], [1, -1, NAN, 0, 1]),
    ("rsqrt", [INF, -INF, NAN, 0.0, -0.0, -1.0, 4.0], [0, NAN, NAN, INF, -INF, NAN, 0.5]),
    ("recip", [INF, -INF, NAN, 0.0, -0.0, 4.0], [0, -0.0, NAN, INF, -INF, 0.25]),
    ("sqrt", [INF, -INF, NAN, 0.0, 4.0], [INF, NAN, NAN, 0, 2]),
    ("sin", [INF, -INF, NAN, 0.0, TINY], [NAN, NAN, NAN, 0, TINY]),
    ("cos", [INF, -INF, NAN, 0.0, TINY], [NAN, NAN, NAN, 1, 1]),
]


@pytest.mark.parametrize(("name", "x", "want"), LIMITS, ids=[case[0] for case in LIMITS])
def test_limits(name: str, x: list[float], want: list[float]):
    np.testing.assert_array_equal(getattr(numerics, name)(np.float32(x)), np.float32(want))


@pytest.mark.parametrize("name", ["sin", "tanh", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str):
    assert np.signbit(getattr(numerics, name)(np.float32([-0.0])))[0]


def test_shapes_are_kept_and_blocks_join():
    x = np.linspace(-3, 3, 3 * 5000, dtype=np.float32).reshape(3, 5000)
    whole = numerics.exp(x)
    assert whole.shape == x.shape
    np.testing.assert_array_equal(whole[:, ::7], numerics.exp(x[:, ::7]))
    assert numerics.exp(np.float32(0)).shape == ()
    assert numerics.exp(np.zeros((0, 4), np.float32)).shape == (0, 4)
