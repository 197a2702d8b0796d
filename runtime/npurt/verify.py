"""Checks every record of an image before anything runs: enumerations, bases, extents, kernels, work.

What passes cannot touch a byte outside its buffers for n_past from 0 to `Entry.max_past` with one new row, nor for
n_past = 0 with all new rows; other steps are checked when they are submitted, on the patched records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from npurt.abi.bytecode import ArgMode
from npurt.abi.dtypes import DType
from npurt.abi.records import (
    FLAG_BYTES,
    FLAGS,
    NO_BASE,
    RANGES,
    STEP_BYTES,
    BaseKind,
    DmaOp,
    DpuFlag,
    Predicate,
    Queue,
    Step,
)
from npurt.errors import BlobError
from npurt.extents import (
    Refuse,
    Views,
    bits_of,
    check_distinct,
    check_rows,
    check_views,
    is_code,
    is_float,
    is_integer,
    is_scale,
    item_bytes,
    views,
)
from npurt.image import StepPatch, Tables
from npurt.shave.program import Program

MAX_BASE_BYTES = 1 << 40
MAX_DEVICE_BYTES = 1 << 34  # what a device allocates for one image: scratchpad, scratch, states, inputs and outputs
MAX_CMX_BYTES = 1 << 26
MAX_WORK = 1 << 44  # elements moved, multiply-accumulates and vector elements of one entry
_ALLOCATED = (BaseKind.CMX, BaseKind.SCRATCH, BaseKind.INPUT, BaseKind.OUTPUT, BaseKind.STATE)
_PREDICATES = [int(predicate) for predicate in Predicate]


def check_bases(bases: np.ndarray, weights_bytes: int, scratch_bytes: int) -> None:
    """Kinds and sizes of the base table, and what the device would have to allocate."""
    fixed = {BaseKind.CONST: weights_bytes, BaseKind.SCRATCH: scratch_bytes, BaseKind.STEP: STEP_BYTES}
    total = 0
    for row, (_, size, kind, tile, _, flags) in enumerate(bases.tolist()):
        if kind not in BaseKind._value2member_map_ or tile or flags:
            raise BlobError(f"base {row}: kind {kind}, tile {tile} or flags {flags} is unknown")
        due, most = fixed.get(kind, size), MAX_CMX_BYTES if kind == BaseKind.CMX else MAX_BASE_BYTES
        if size != due:
            raise BlobError(f"base {row} of kind {BaseKind(kind).name}: {size} bytes, {due} are due")
        if size > most:
            raise BlobError(f"base {row} of kind {BaseKind(kind).name}: {size} bytes, {most} are allowed")
        total += size if kind in _ALLOCATED else 0
    if total > MAX_DEVICE_BYTES:
        raise BlobError(f"the blob wants {total} bytes of device memory, {MAX_DEVICE_BYTES} are allowed")
    for kind in (BaseKind.CMX, BaseKind.CONST, BaseKind.SCRATCH, BaseKind.STEP):
        if np.count_nonzero(bases["kind"] == kind) != 1:
            raise BlobError(f"the base table has not exactly one base of kind {kind.name}")


def _check_predicates(records: np.ndarray, bases: np.ndarray, refuse: Refuse) -> None:
    """Known predicates; a flag is an aligned int32 inside its base, a range has any extent, others have neither."""
    check_rows(~np.isin(records["pred"], _PREDICATES), "predicate is unknown", refuse)
    flagged = np.isin(records["pred"], FLAGS)
    alone = ~flagged & ~np.isin(records["pred"], RANGES)
    check_rows(alone & (records["pred_base"] != 0), "a predicate of the step has a base", refuse)
    check_rows(flagged & (records["pred_value"] % FLAG_BYTES != 0), "the flag is not aligned", refuse)
    one, word = np.ones((len(records), 1), np.int64), np.full(len(records), FLAG_BYTES)
    flags = views(records["pred_base"], records["pred_value"].astype(np.int64), one, word[:, None], word)
    check_views("flag", flags, bases, False, flagged, refuse)


def row_limits(
    dma: np.ndarray, first: int, patches: Sequence[StepPatch], largest: dict[Step, int]
) -> tuple[np.ndarray, np.ndarray]:
    """For each record the offsets at step 0 [records, 2] (src, dst) and the most valid rows it can have.

    first: the table row of dma[0]. largest: of each step field.
    """
    offsets = np.stack([dma["src_offset"], dma["dst_offset"]], axis=1)
    valid = dma["valid"].astype(np.int64)
    for patch in patches:
        record = dma[patch.row - first]
        if patch.field == "valid":
            most = largest[patch.symbol] + patch.addend
            valid[patch.row - first] = min(max(most, 0), int(record["size"][record["row_dim"] & 3]))
        else:
            offsets[patch.row - first, int(patch.field == "dst_offset")] = patch.addend  # a bool would index as a mask
    return offsets, valid


def check_dma(dma: np.ndarray, offsets: np.ndarray, valid: np.ndarray, bases: np.ndarray, refuse: Refuse) -> float:
    """One entry's DMA records with the given offsets [records, 2] and valid rows. Returns the elements moved."""
    copy, fill, gather, scatter = (dma["op"] == op for op in (DmaOp.COPY, DmaOp.FILL, DmaOp.GATHER, DmaOp.SCATTER))
    indexed = gather | scatter
    check_rows(~(copy | fill | indexed), "unknown operation", refuse)
    check_rows(dma["row_dim"] > 3, "row_dim is unknown", refuse)
    _check_predicates(dma, bases, refuse)
    check_rows(~np.isin(dma["queue"], [Queue.DMA_IN, Queue.DMA_OUT]), "no DMA queue", refuse)
    reads = copy | indexed
    check_rows(
        (item_bytes(dma["dst_type"]) == 0) | (reads & (item_bytes(dma["src_type"]) == 0)), "unknown type", refuse
    )
    rows = np.arange(len(dma))
    row_dim = dma["row_dim"]
    size = dma["size"].astype(np.int64)
    check_rows(dma["valid"] > size[rows, row_dim], "more valid rows than rows", refuse)
    source_size, index_size, target_size = size.copy(), size[rows, row_dim], size.copy()
    source_size[rows, row_dim] = np.where(gather, dma["index_bound"], valid)
    check_rows(indexed & (dma["index_bound"] > 2**31 - 1), "index_bound beyond int32", refuse)
    stores = dma["queue"] == Queue.DMA_OUT
    target_size[rows, row_dim] = np.where(stores, valid, target_size[rows, row_dim])
    target_size[rows, row_dim] = np.where(scatter, dma["index_bound"], target_size[rows, row_dim])
    source = views(dma["src_base"], offsets[:, 0], source_size, dma["src_stride"], item_bytes(dma["src_type"]))
    target = views(dma["dst_base"], offsets[:, 1], target_size, dma["dst_stride"], item_bytes(dma["dst_type"]))
    index = views(
        dma["index_base"], dma["index_offset"], index_size[:, None], np.full((len(dma), 1), 4), np.full(len(dma), 4)
    )
    check_views("source", source, bases, False, reads, refuse)
    everywhere = np.ones(len(dma), bool)
    check_views("destination", target, bases, True, everywhere, refuse)
    check_distinct("destination", target, bases, everywhere, refuse)
    check_views("index", index, bases, False, indexed, refuse)
    return float(size.astype(np.float64).prod(axis=1).sum())


def largest_past(
    dma: np.ndarray,
    first: int,
    patches: Sequence[StepPatch],
    valid: np.ndarray,
    bases: np.ndarray,
    rows: int,
    refuse: Refuse,
) -> float:
    """The largest n_past with which every shifted access of one row stays in its base; inf where none is shifted.

    A shift by n_new must fit for all `rows`: BlobError where it does not.
    """
    best = inf
    follows_new = {patch.row for patch in patches if patch.field == "valid" and patch.symbol is Step.N_NEW}
    for patch in patches:
        if patch.field == "valid":
            continue
        record, side = dma[patch.row - first], patch.field[:3]
        size = record["size"].astype(np.int64)
        dim = int(record["row_dim"])
        most = int(valid[patch.row - first])
        size[dim] = min(most, 1) if patch.row in follows_new else most
        stride = int(record[f"{side}_stride"][dim])
        view = views(
            record[f"{side}_base"][None], np.array([patch.addend]), size[None], record[f"{side}_stride"][None],
            item_bytes(record[f"{side}_type"][None]),
        )  # fmt: skip
        room = float(bases["size"][record[f"{side}_base"]]) - patch.addend - view.high[0]
        if stride < 0:
            room = patch.addend + view.low[0]
        limit = inf if stride == 0 else room // abs(stride)  # an empty view begins inside its base, too
        if patch.symbol is Step.N_NEW and limit < rows:
            raise refuse(patch.row - first, f"the {side} shifted by n_new leaves its base from {limit:.0f} on")
        if patch.symbol is Step.N_PAST:
            best = min(best, limit)
    return best


def check_dpu(dpu: np.ndarray, bases: np.ndarray, refuse: Refuse) -> float:
    """One entry's DPU records. Returns the multiply-accumulates."""
    flags = dpu["flags"]
    known = int(DpuFlag.ACCUMULATE | DpuFlag.B_KN | DpuFlag.TABLE | DpuFlag.CLAMP | DpuFlag.SCALES)
    check_rows((flags & ~np.uint8(known)) != 0, "flag is unknown", refuse)
    _check_predicates(dpu, bases, refuse)
    check_codes(dpu, refuse)
    floats = is_float(dpu["a_type"]) & (is_float(dpu["b_type"]) | is_code(dpu["b_type"]))
    whole = is_integer(dpu["b_type"]) | (is_code(dpu["b_type"]) & (dpu["b_type"] != DType.E2M1))
    integers = is_integer(dpu["a_type"]) & whole
    check_rows(~(floats | integers), "operands are neither both floats nor both integers", refuse)
    accumulate = (flags & DpuFlag.ACCUMULATE) != 0
    check_rows(~(is_float(dpu["c_type"]) | is_integer(dpu["c_type"])), "unknown result type", refuse)
    check_rows(accumulate & ~is_float(dpu["c_type"]), "accumulation into a result that is no float", refuse)
    swapped = (flags & DpuFlag.B_KN) != 0
    batch, m, n, k = (dpu[name].astype(np.int64) for name in ("batch", "m", "n", "k"))
    shapes = {"a": (m, k), "b": (np.where(swapped, k, n), np.where(swapped, n, k)), "c": (m, n)}
    everywhere = np.ones(len(dpu), bool)
    for name, (height, width) in shapes.items():
        nbytes = item_bytes(dpu[f"{name}_type"])
        if name == "b":  # packed codes are counted in bytes
            packed = bits_of(dpu["b_type"]) < 8
            width = np.where(packed, width * bits_of(dpu["b_type"]) // 8, width)
            nbytes = np.where(packed, 1, nbytes)
        stride = np.stack([dpu[f"{name}_batch"], dpu[f"{name}_stride"], nbytes.astype(np.int64)], axis=1)
        found = views(
            dpu[f"{name}_base"], dpu[f"{name}_offset"], np.stack([batch, height, width], axis=1), stride, nbytes
        )
        check_views(f"operand {name}", found, bases, name == "c", everywhere, refuse)
        shared = (dpu[f"{name}_batch"] == 0) & (name != "c")  # one matrix for all batches
        found = replace(found, nbytes=found.nbytes / np.where(shared, batch.clip(1), 1))
        check_distinct(f"operand {name}", found, bases, everywhere, refuse)
    eight = np.full(len(dpu), 8)
    table = views(dpu["table_base"], dpu["table_offset"], n[:, None], eight[:, None], eight)
    check_views("table", table, bases, False, (flags & DpuFlag.TABLE) != 0, refuse)
    groups = -(-k // np.where(dpu["group"] > 0, dpu["group"], k.clip(1)))
    item = item_bytes(dpu["scale_type"])
    scales = views(
        dpu["table_base"], dpu["table_offset"], np.stack([n, groups], axis=1),
        np.stack([dpu["table_stride"], item.astype(np.int64)], axis=1), item,
    )  # fmt: skip
    scaled = (flags & DpuFlag.SCALES) != 0
    check_views("scales", scales, bases, False, scaled, refuse)
    check_distinct("scales", scales, bases, scaled, refuse)
    macs = batch.astype(np.float64) * m * n * np.maximum(k, 1)
    return float(macs.sum())


def check_codes(dpu: np.ndarray, refuse: Refuse) -> None:
    """What packed codes, zero points and scales of groups ask for beside types and extents."""
    flags, bits = dpu["flags"], bits_of(dpu["b_type"])
    scaled = (flags & DpuFlag.SCALES) != 0
    both = scaled & ((flags & DpuFlag.TABLE) != 0)
    check_rows(both | (scaled & (dpu["batch"] > 1)), "scales beside a table, or of more than one matrix", refuse)
    turned = ((bits < 8) | scaled) & ((flags & DpuFlag.B_KN) != 0)
    check_rows(turned, "packed or scaled operand b that is stored [k, n]", refuse)
    check_rows(scaled & ~is_scale(dpu["scale_type"]), "unknown type of scales", refuse)
    unused = ~scaled & ((dpu["scale_type"] != 0) | (dpu["group"] != 0) | (dpu["table_stride"] != 0))
    check_rows(unused, "a field of scales without scales", refuse)
    check_rows(dpu["k"].astype(np.int64) * bits % 8 != 0, "codes of operand b end within a byte", refuse)
    zero = dpu["b_zero"]
    plain = ~is_code(dpu["b_type"]) | (dpu["b_type"] == DType.E2M1)
    check_rows((zero != 0) & (plain | (zero < -128) | (zero > 255)), "a zero point of operand b", refuse)


def check_shave(shave: np.ndarray, tables: Tables, refuse: Refuse) -> float:
    """One entry's SHAVE records: kernels, argument rows, and the extent of each pointer. Returns the vector work."""
    _check_predicates(shave, tables.bases, refuse)
    check_rows(shave["kernel"] >= len(tables.programs), "kernel does not exist", refuse)
    work = 0.0
    pointers: list[tuple[int, int, int, float, float, bool]] = []
    arg_rows = tables.shave_args.tolist()
    for row, (kernel, first, count) in enumerate(shave[["kernel", "arg_first", "arg_count"]].tolist()):
        program: Program = tables.programs[kernel]
        if count != len(program.args) or first + count > len(arg_rows):
            raise refuse(
                row, f"{count} arguments from row {first} of {len(arg_rows)}, the kernel takes {len(program.args)}"
            )
        work += program.work
        for spec, (base, _, offset) in zip(program.args, arg_rows[first : first + count], strict=True):
            if base != NO_BASE:
                pointers.append((row, base, offset, spec.low, spec.high, spec.writes))
            elif spec.mode is not ArgMode.SCALAR:
                raise refuse(row, "a pointer argument is given as a number")
    _check_pointers(pointers, tables.bases, refuse)
    return work


def _check_pointers(
    pointers: Sequence[tuple[int, int, int, float, float, bool]], bases: np.ndarray, refuse: Refuse
) -> None:
    for writes in (False, True):
        chosen = [pointer for pointer in pointers if pointer[5] is writes]
        if not chosen:
            continue
        row, base, offset, low, high = (np.array(column) for column in list(zip(*chosen, strict=True))[:5])
        low, high = low.astype(np.float64), high.astype(np.float64)
        found = Views(base, offset.astype(np.float64), low, high, high - low)

        def refuse_pointer(place: int, what: str, rows: np.ndarray = row) -> BlobError:
            return refuse(int(rows[place]), what)

        check_views("argument", found, bases, writes, np.ones(len(base), bool), refuse_pointer)
