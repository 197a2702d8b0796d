"""A new activation: y = max(x, 0)^2, for an operator that no compiler knows.

The model calls examples::SquaredRelu, a function of its own with a body in standard operators, so that it runs in
onnxruntime, too. The kernel takes the call's place.

npuc kernel run examples/kernels/squared_relu.py --check
npuc compile MODEL -o model.npu --kernel examples::SquaredRelu=examples/kernels/squared_relu.py:squared_relu
"""

import numpy as np

from npuc import tile as t


@t.kernel
def squared_relu(x, out, *, rows):
    """x, out: any equal shapes of up to four axes. rows: of a block, along the last axis but one."""
    *lead, height, _ = shape = (1,) * (2 - x.rank) + x.shape
    assert len(shape) == x.rank, "at least two axes"
    (p,) = t.programs(t.cdiv(height, rows))
    index, size = (*(0 for _ in lead), p * rows, 0), (*lead, rows, x.shape[-1])
    positive = t.maximum(t.load(x, index, size), 0.0)
    t.store(out, index, positive * positive)


def candidates(types, params):
    """Blocks from all rows down to one."""
    rows = types[0].shape[-2]
    while rows > 1:
        yield {"rows": rows}
        rows = -(-rows // 2)
    yield {"rows": 1}


def example():
    array = t.dense(t.f16, (1, 37, 96))
    return t.Example((array, array), {"rows": 8}, lambda x: np.maximum(x, 0.0) ** 2)
