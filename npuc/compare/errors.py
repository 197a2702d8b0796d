"""Why a comparison cannot be made. A difference is no error: it is a result."""

from __future__ import annotations


class CompareError(Exception):
    """A wrong request: inputs that do not fit, options that exclude each other."""


class OracleMissing(CompareError):
    """onnxruntime is not installed."""


class OracleRefused(Exception):
    """onnxruntime cannot run the model, so there is nothing to compare with."""
