"""The ops of attention that runs as the model writes it: filled slots of a cache, masks and biases of the step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from npuc.lower import views
from npuc.lower.context import Lowering, attribute
from npuc.lower.errors import LoweringRefused, describe
from npuc.tasks import Region
from npurt.abi.dtypes import DType


def past_rows(low: Lowering, node: ir.Node) -> None:
    """npuc.PastRows(past [1, G, N, D], n_past): loads whose rows from n_past on are zeros."""
    out = low.new(node.outputs[0])
    low.call("past_rows", (_without_batch(low.region(node.inputs[0])), _without_batch(out)), node)
    low.at[node.outputs[0]] = out


def step_mask(low: Lowering, node: ir.Node) -> None:
    """npuc.StepMask(n_past): bool [1, 1, rows, capacity + rows]."""
    out = low.new(node.outputs[0])
    plane = views.reshape(out, out.shape[2:])
    assert plane is not None
    low.call(
        "step_mask",
        (plane,),
        node,
        capacity=_capacity(node),
        causal=bool(attribute(node, "causal", 1)),
        window=int(attribute(node, "window", 0)),
    )
    low.at[node.outputs[0]] = out


def step_bias(low: Lowering, node: ir.Node) -> None:
    """npuc.StepBias(n_past): f32 [1, H, rows, capacity + rows], stored as floats are."""
    out = low.new(node.outputs[0])
    slopes = np.array(attribute(node, "slopes", ()), "<f4")
    table = low.consts.region(f"{slopes.tobytes().hex()}.heads", DType.F32, slopes.shape, lambda: slopes)
    low.call("step_bias", (table, _without_batch(out)), node, capacity=_capacity(node))
    low.at[node.outputs[0]] = out


def _capacity(node: ir.Node) -> int:
    if attribute(node, "whole", 0):
        raise LoweringRefused([f"{describe(node)}: there is no kernel for the slots of a cache of a fixed size"])
    return int(attribute(node, "capacity", 0))


def _without_batch(region: Region) -> Region:
    assert region.rank == 4 and region.shape[0] == 1, region.shape
    return replace(region, shape=region.shape[1:], stride=region.stride[1:])


RULES = {
    ("npuc", "PastRows"): past_rows,
    ("npuc", "StepMask"): step_mask,
    ("npuc", "StepBias"): step_bias,
}
