"""The NumPy evaluator: one table from operator to function, for folding constants and for proofs by evaluation.

Semantics are those of ONNX operator set 21. A function takes arrays of any float width; with float64 arrays it is the
formula itself, which the proofs of the fusion rules use.
"""

from __future__ import annotations

import numpy as np

from npuc.graph.evalops import elementwise, movement, quantized, reduction
from npuc.graph.evalops.common import Array, Attributes, EvaluationError, Inputs, OpFunction, OutOfTable

__all__ = ["OPERATORS", "EvaluationError", "OutOfTable", "can_evaluate", "evaluate"]

OPERATORS: dict[str, OpFunction] = {
    **elementwise.OPERATORS,
    **movement.OPERATORS,
    **reduction.OPERATORS,
    **quantized.OPERATORS,
}


def can_evaluate(domain: str, op_type: str) -> bool:
    """Whether the table has the operator."""
    return domain == "" and op_type in OPERATORS


def evaluate(domain: str, op_type: str, inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The operator's outputs.

    Raises EvaluationError if the table lacks the operator or the values do not fit it, OutOfTable if an index runs
    past the end of what it reads.
    """
    if not can_evaluate(domain, op_type):
        raise EvaluationError(f"no evaluator for {domain + '::' if domain else ''}{op_type}")
    try:
        with np.errstate(all="ignore"):
            result = OPERATORS[op_type](inputs, attributes)
    except (ValueError, IndexError, KeyError, TypeError, ArithmeticError) as error:
        if isinstance(error, EvaluationError):
            raise
        shapes = ", ".join("-" if value is None else str(list(value.shape)) for value in inputs)
        raise EvaluationError(f"{op_type} of shapes {shapes}: {error}") from error
    return tuple(np.asarray(value) for value in result) if isinstance(result, tuple) else (np.asarray(result),)
