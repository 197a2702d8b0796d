"""Fixed-size records of the blob: bases, entries, barriers and the task descriptors of each engine.

All fields are little-endian; padding bytes are zero. An operand is an index into the base table and a byte offset,
so that binding a buffer patches one base record and no task. Strides are in bytes, sizes in elements, the outermost
dimension first; unused leading dimensions have size 1 and stride 0.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

import numpy as np

NO_BASE = 0xFFFFFFFF
NO_NODE = 0xFFFFFFFF
MAX_RANK = 4


class BaseKind(IntEnum):
    """What a base-table row points at; decides who provides the memory."""

    CMX = 1  # scratchpad of one tile, the device's own
    CONST = 2  # the weights section, mapped read-only
    SCRATCH = 3  # DDR scratch, the loader allocates it zeroed
    STEP = 4  # the 64-byte step block
    INPUT = 5  # bound by the caller
    OUTPUT = 6  # bound by the caller
    STATE = 7  # bound once for all entries; written in place


BASE = np.dtype(
    {
        "names": ["address", "size", "kind", "tile", "symbol", "flags"],
        "formats": ["<u8", "<u8", "<u4", "<u4", "<u4", "<u4"],
        "offsets": [0, 8, 16, 20, 24, 28],
        "itemsize": 32,
    }
)

ENTRY = np.dtype(
    {
        # first/count are row ranges of the blob-wide tables; an entry's rows of one table are adjacent
        "names": [
            "name", "rows", "capacity",
            "dma_first", "dma_count", "dpu_first", "dpu_count", "shave_first", "shave_count",
            "barrier_first", "barrier_count", "base_first", "base_count", "cmx_peak", "scratch_bytes", "step_first",
            "step_count",
        ],
        "formats": ["<u4"] * 13 + ["<u8", "<u8", "<u4", "<u4"],
        "offsets": [*range(0, 52, 4), 56, 64, 72, 76],
        "itemsize": 96,
    }
)  # name: offset in .npu.names; base rows: the entry's own inputs and outputs; step rows: of .rela.npu.dma.step

BARRIER = np.dtype(
    {
        "names": ["id", "producers", "consumers", "reserved"],
        "formats": ["<u2"] * 4,
        "offsets": [0, 2, 4, 6],
        "itemsize": 8,
    }
)


class Queue(IntEnum):
    """In-order hardware queues. A queue starts its tasks in table order; queues run beside each other."""

    DMA_IN = 0  # DDR is the source
    DMA_OUT = 1  # CMX is the source
    DPU = 2
    SHAVE = 3


class DmaOp(IntEnum):
    COPY = 1  # dst[i] = src[i], element type converted where the two differ
    FILL = 2  # dst[i] = fill
    GATHER = 3  # dst[r, ...] = src[index[r], ...]; a row whose index is outside [0, index_bound) is zero
    SCATTER = 4  # dst[index[r], ...] = src[r, ...], in rising order of r; a row whose index is outside is skipped


class Step(IntEnum):
    """Fields of the step block: sixteen little-endian int32; only these have a meaning, the rest is zero."""

    N_PAST = 0  # rows of the KV cache that are valid before this step
    N_NEW = 1  # valid rows of this step's input (the first n_new of the entry's rows)


STEP_BYTES = 64


class Predicate(IntEnum):
    """A task whose predicate is false does nothing but still waits for and posts its barriers.

    Those of the step block are known at submit. Of a range `pred_base` is the number of values that hold, from
    pred_value + 1 on; 0 where none does. A flag is an int32 in device memory, `pred_value` bytes from base `pred_base`,
    which the engine reads when the task starts.
    """

    ALWAYS = 0
    PAST_GT = 1  # step[N_PAST] > pred_value
    NEW_GT = 2  # step[N_NEW] > pred_value
    FLAG_NZ = 3  # the flag is not 0
    FLAG_Z = 4  # the flag is 0
    PAST_IN = 5  # pred_value < step[N_PAST] <= pred_value + pred_base
    NEW_IN = 6  # pred_value < step[N_NEW] <= pred_value + pred_base


FLAGS = (Predicate.FLAG_NZ, Predicate.FLAG_Z)
RANGES = (Predicate.PAST_IN, Predicate.NEW_IN)
PREDICATE_FIELDS = {
    Predicate.PAST_GT: Step.N_PAST, Predicate.PAST_IN: Step.N_PAST,
    Predicate.NEW_GT: Step.N_NEW, Predicate.NEW_IN: Step.N_NEW,
}  # fmt: skip
"""The field that each predicate of the step block compares."""
FLAG_BYTES = 4


_SYNC_NAMES = ["wait", "post", "start_after", "node"]
_SYNC_FORMATS = [("<u8", (2,)), ("<u8", (2,)), "<u4", "<u4"]
# wait, post: masks of physical barrier ids; start_after: number of barriers that must have been programmed before the
# task may start, that is one more than the highest barrier row (relative to the entry) that it waits for or posts;
# node: offset in .npu.names of the graph node's name, NO_NODE where a task belongs to none

DMA = np.dtype(
    {
        "names": [
            "op", "queue", "row_dim", "pred", "src_type", "dst_type", "pad_",
            "pred_value", "pred_base", "src_base", "dst_base", "index_base",
            "src_offset", "dst_offset", "index_offset",
            "size", "src_stride", "dst_stride", "valid", "index_bound", "fill",
            *_SYNC_NAMES,
        ],
        "formats": [
            "u1", "u1", "u1", "u1", "u1", "u1", "<u2", "<i4", "<u4", "<u4", "<u4", "<u4",
            "<u8", "<u8", "<u8", ("<u4", (4,)), ("<i8", (4,)), ("<i8", (4,)), "<u4", "<u4", "<u4",
            *_SYNC_FORMATS,
        ],
        "offsets": [
            0, 1, 2, 3, 4, 5, 6, 8, 140, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 132, 136, 144, 160, 176, 180,
        ],
        "itemsize": 192,
    }
)
# row_dim, valid: only the first `valid` indices of dimension row_dim are read from the source. The rest of the
# destination is zero-filled (loads: 0 x NaN must not leak), or left untouched where flag-free queue DMA_OUT writes it:
# a store writes only the valid rows. valid == size[row_dim] where nothing is cut.


class DpuFlag(IntFlag):
    ACCUMULATE = 1  # c += result (c is read as f32)
    B_KN = 2  # b is stored [k, n] and not [n, k]
    TABLE = 4  # per output channel: result * scale + bias, rows of DPU_TABLE
    CLAMP = 8  # then clamp to [clamp_lo, clamp_hi]
    SCALES = 16  # the sum of each `group` of k times a scale of its own per output channel; instead of TABLE


DPU = np.dtype(
    {
        "names": [
            "flags", "a_type", "b_type", "c_type", "pred", "pred_value", "pred_base", "scale_type", "b_zero",
            "a_base", "b_base", "c_base", "table_base",
            "a_offset", "b_offset", "c_offset", "table_offset", "batch", "m", "n", "k",
            "a_stride", "b_stride", "c_stride",
            "a_batch", "b_batch", "c_batch", "scale", "clamp_lo", "clamp_hi", "group", "table_stride", *_SYNC_NAMES,
        ],
        "formats": [
            "u1", "u1", "u1", "u1", "u1", "<i4", "<u4", "u1", "<i2", "<u4", "<u4", "<u4", "<u4",
            "<u8", "<u8", "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<i8", "<i8", "<i8",
            "<i8", "<i8", "<i8", "<f4", "<f4", "<f4", "<u4", "<i4", *_SYNC_FORMATS,
        ],
        "offsets": [
            0, 1, 2, 3, 4, 8, 188, 5, 6, 12, 16, 20, 24, 32, 40, 48, 56, 64, 68, 72, 76, 80, 88, 96, 104, 112, 120,
            128, 132, 136, 140, 184, 144, 160, 176, 180,
        ],
        "itemsize": 192,
    }
)
# c[b, i, j] = clamp(table(scale * sum_l a[b, i, l] * b[b, j, l])); strides are of rows, elements of a row are adjacent.
# The sum is exact (float64 for floats, int64 for integers) and rounded once, to f32; `c +=` adds that to c in f32;
# the store rounds once more where c_type is narrower.
# b may hold integer codes (I8, U8, or packed I4, U4, U2) or packed floats (E2M1) whatever a holds: its rows are bytes,
# and code x stands for number(x) - b_zero, exactly. With SCALES the sum over l is cut into groups of `group` places, of
# which the last may be short (0: one group of all): for g = 0, 1, ... the exact sum of group g is multiplied with
# scale [j, g] (of scale_type; table_stride bytes between channels, those of a channel adjacent) and added, each step
# rounded to f32.

DPU_TABLE = np.dtype([("scale", "<f4"), ("bias", "<f4")])

SHAVE = np.dtype(
    {
        "names": ["kernel", "arg_first", "arg_count", "pred", "pred_value", "pred_base", *_SYNC_NAMES],
        "formats": ["<u4", "<u4", "<u4", "u1", "<i4", "<u4", *_SYNC_FORMATS],
        "offsets": [0, 4, 8, 12, 16, 20, 24, 40, 56, 60],
        "itemsize": 64,
    }
)  # kernel: row of .npu.shave.kernels; args: rows of .npu.shave.args

SHAVE_KERNEL = np.dtype(
    {"names": ["text", "text_bytes", "name"], "formats": ["<u4", "<u4", "<u4"], "offsets": [0, 4, 8], "itemsize": 16}
)  # text: byte offset in .npu.shave.text, 1 KiB aligned; name: offset in .npu.names

SHAVE_ARG = np.dtype(
    {"names": ["base", "scalar", "offset"], "formats": ["<u4", "<i4", "<u8"], "offsets": [0, 4, 8], "itemsize": 16}
)  # base == NO_BASE: the argument is the int32 `scalar`; else a pointer, whose extent the kernel's text declares

MAX_COORD = 6
ORIGIN = np.dtype(
    {
        "names": ["kernel", "stage", "sequence", "rank", "coord"],
        "formats": ["<u4", "<u4", "<u4", "<u4", ("<i4", (MAX_COORD,))],
        "offsets": [0, 4, 8, 12, 16],
        "itemsize": 40,
    }
)  # one row per task: those of .npu.dma, then of .npu.dpu, then of .npu.shave. kernel, stage: offsets in .npu.names;
# sequence: the task's place in the entry's trace order; coord: program ids and so on, the first `rank` places count
