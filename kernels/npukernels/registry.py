"""The kernels by name, with the tile sizes that are worth trying for given arrays, the largest first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from npuc.tile import ArrayType, Kernel
from npukernels import (
    attention,
    attention_flash,
    attention_incremental,
    attention_linear,
    attention_sizes,
    attention_sparse,
    codes,
    convolution,
    elementwise,
    experts,
    integers,
    matmul,
    normalise,
    reduce,
    ring,
    rotary,
    rows,
)
from npukernels.attention_sizes import halvings

Types = Sequence[ArrayType | None]
Sizes = dict[str, Any]
Candidates = Callable[..., Iterator[Sizes]]
PANEL = 16  # output channels that the DPU writes at once: blocks of columns are multiples of it
MAX_STEPS = 64  # blocks that one program may unroll along the inner axis
STRIDED = 1.1  # assumed: parts of rows load a little slower than whole ones
TASK_BYTES = 20_000  # what a transfer's latency of 300 ns is worth at 68 GB/s (npu40xx.toml)


@dataclass(frozen=True)
class KernelSpec:
    """A kernel of the library.

    family: what it is for; form: its arrays and their shapes. candidates(types, params, free=None): tile-size
    parameters for arrays of these types under the other parameters, in the order in which they should be tried. free:
    bytes of on-chip memory for local buffers; what cannot fit there is left out where that is easy to see.
    """

    name: str
    kernel: Kernel
    family: str
    form: str
    candidates: Candidates


def get(name: str) -> KernelSpec:
    """The kernel of a name; "map3" is "map" for three inputs. KeyError with the known names."""
    key = "map" if name.startswith("map") and name[3:].isdigit() else name
    if key not in KERNELS:
        raise KeyError(f"no kernel {name!r}; there are {', '.join(KERNELS)}")
    return KERNELS[key]


def _shape(types: Types, number: int) -> tuple[int, ...]:
    type_ = types[number]
    assert type_ is not None  # optional arrays are never the ones that tile sizes follow
    return type_.shape


def _ddr_bytes(types: Types, number: int) -> int:
    """Bytes of an array that cross DDR each time it is loaded whole."""
    type_ = types[number]
    return 0 if type_ is None or type_.on_chip else type_.elements * type_.dtype.nbytes


def _matrix(weights: int) -> Candidates:
    """Blocks for products with `weights` matrices, priced by the bytes they load and by their number of transfers.

    One operand is loaded once, the other once for each block of the first. Equal prices: the larger block first.
    """

    def candidates(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
        (m, k), n = _shape(types, 0), _shape(types, 1)[0]
        x_bytes, w_bytes = _ddr_bytes(types, 0), weights * _ddr_bytes(types, 1)
        priced = []
        for bm, bn, bk in product(halvings(m, PANEL), halvings(n, PANEL), halvings(k, 8 * PANEL)):
            local = x_bytes // m * bm * bk // k + w_bytes // n * bn * bk // k + 4 * bm * bn * (bk < k)
            if free is not None and local > free:
                continue
            rows, columns, steps = -(-m // bm), -(-n // bn), -(-k // bk)
            transfers = rows * columns * (steps * (1 + weights) + (steps > 1)) * TASK_BYTES
            sizes = {"bm": bm, "bn": bn, "bk": bk}
            once = 1 if bk == k else rows  # steps along K keep no block of the outer operand
            price = (x_bytes * columns + w_bytes * once) * (1 if bk == k else STRIDED) + transfers
            priced.append((price, -bm * bn * bk, {**sizes, "outer": "n"}))
            if rows > 1 and 1 < columns <= MAX_STEPS and bk == k:
                priced.append((x_bytes + w_bytes * rows + transfers, -bm * bn * bk, {**sizes, "outer": "m"}))
        yield from (sizes for _, _, sizes in sorted(priced, key=lambda item: item[:2]))

    return candidates


def _codes(weights: int) -> Candidates:
    """Blocks for products with `weights` matrices of rows that hold codes: each row is loaded once, whole.

    Fewest transfers first; where x is in DDR, also by how often it is loaded.
    """

    def candidates(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
        (m, k), (n, nbytes) = _shape(types, 0), _shape(types, 1)
        x_bytes, wide = _ddr_bytes(types, 0), 8 * k if params.get("widen") else 0  # f32 numbers and what they round to
        shifted = params["row"].shifts is not None
        priced = []
        for bm, bn in product(halvings(m, PANEL), halvings(n, PANEL)):
            local = x_bytes // m * bm + weights * bn * (nbytes + wide + 4 * bm * shifted)
            if free is not None and local > free:
                continue
            rows, columns = -(-m // bm), -(-n // bn)
            price = x_bytes * columns + TASK_BYTES * columns * (weights + rows * (x_bytes > 0))
            priced.append((price, -bm * bn, {"bm": bm, "bn": bn}))
        yield from (sizes for _, _, sizes in sorted(priced, key=lambda item: item[:2]))

    return candidates


def _whole_rows(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """Blocks of a product of codes [M, K] and [N, K], array 6 its result: as _matrix's, with full rows of K."""
    two = (types[0], types[3])
    for sizes in _matrix(1)(two, params, free):
        if sizes["bk"] == _shape(types, 0)[1] and sizes["outer"] == "n":
            yield {"bm": sizes["bm"], "bn": sizes["bn"]}


def _along_columns(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """As _matrix's, for a walk along the columns in one program: a moderate number of blocks."""
    for sizes in _matrix(1)(types, params, free):
        if sizes.pop("outer") == "n" and -(-_shape(types, 1)[0] // sizes["bn"]) <= MAX_STEPS:
            yield sizes


def _batched(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    batch, m, n = _shape(types, 2)
    for bb in halvings(batch):
        yield {"bb": bb, "bm": m, "bn": n}
    for bn in list(halvings(n, PANEL))[1:]:
        yield {"bb": 1, "bm": m, "bn": bn}
    for bm in list(halvings(m))[1:]:
        yield {"bb": 1, "bm": bm, "bn": min(n, PANEL)}


def _shrinking(shape: Sequence[int], fixed: Sequence[int] = ()) -> Iterator[tuple[int, ...]]:
    """Blocks of `shape`: outer axes are halved to 1 before inner ones start; axes in `fixed` stay whole."""
    size = [max(extent, 1) for extent in shape]
    yield tuple(size)
    for axis in [d for d in range(len(size)) if d not in fixed]:
        while size[axis] > 1:
            size[axis] = -(-size[axis] // 2)
            yield tuple(size)


def _blocks_of_last(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    return ({"tile": tile} for tile in _shrinking(_shape(types, len(types) - 1)))


def _rows(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    shape = _shape(types, 0)
    return ({"tile": tile} for tile in _shrinking(shape, (len(shape) - 1,)))


def _around_axes(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    shape = _shape(types, 0)
    axes = params.get("axes") or (params.get("axis", -1),)
    return ({"tile": tile} for tile in _shrinking(shape, [axis % len(shape) for axis in axes]))


def _heads_and_rows(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    return ({"bh": bh, "bc": bc} for bh, bc in _shrinking(_shape(types, 0)[:2]))


def _chosen(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """Blocks of the chosen experts' matrices, of about equal bytes in both layers."""
    (_, depth, width), columns = _shape(types, 3), _shape(types, 5)[1]
    for bf in halvings(depth, PANEL):
        yield {"bf": bf, "bn": min(columns, max(PANEL, bf * width // depth // PANEL * PANEL))}


def _all_experts(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """Weights are loaded once for each block of rows: smaller blocks of columns come before fewer rows."""
    for bm in halvings(_shape(types, 0)[0], PANEL):
        for sizes in _chosen(types, params, free):
            yield {"bm": bm, **sizes}


def _count(name: str, axis_of: int) -> Candidates:
    """One size, along the first axis of an array."""
    return lambda types, params, free=None: ({name: size} for size in halvings(_shape(types, axis_of)[0]))


def _heads_of_rows(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    return ({"bg": bg} for bg in halvings(_shape(types, 0)[1]))


def _depthwise(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """Fewer rows first: blocks of channels are loaded once more for each block of rows but for their overlap."""
    return ({"bt": bt, "bc": bc} for bt, bc in _shrinking(_shape(types, 2)))


def _channels(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    return ({"bc": bc} for bc in halvings(_shape(types, 1)[1]))


def _blocks(*names: str, array: int = 0) -> Candidates:
    """Sizes of blocks along the first axes of an array; an axis without a name stays whole."""

    def candidates(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
        fixed = [axis for axis, name in enumerate(names) if not name]
        for sizes in _shrinking(_shape(types, array)[: len(names)], fixed):
            yield {name: size for name, size in zip(names, sizes, strict=True) if name}

    return candidates


def _scattered(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    """All columns with fewer and fewer rows first."""
    return ({"bn": bn, "bw": bw} for bn, bw in _shrinking(_shape(types, 0)))


def _none(types: Types, params: Mapping[str, Any], free: int | None = None) -> Iterator[Sizes]:
    yield {}


_ATTENTION = (
    "q[H,C,D] k_new[G,T,D] v_new[G,T,Dv] k_past[G,N,D]? v_past[G,N,Dv]? out[H,C,Dv] slopes[H]? sinks[H]? ones[1,K]? "
    "slots[N,2]? k_scales[G,N]? v_scales[G,N]?"
)
_SPECS = (
    KernelSpec("matmul", matmul.matmul, "linear", "x[M,K] w[N,K] out[M,N] table[N,2]? extra..", _matrix(1)),
    KernelSpec("matmul_bias", matmul.matmul, "linear", "x[M,K] w[N,K] out[M,N] table[N,2]", _matrix(1)),
    KernelSpec("matmul_onto", matmul.matmul_onto, "linear", "x[M,K] w[N,K] base[M,N] out[M,N]", _along_columns),
    KernelSpec("matmul_pair", matmul.matmul_pair, "linear",
               "x[M,K] w0[N,K] w1[N,K] out[M,N] table0[N,2]? table1[N,2]? extra..", _matrix(2)),
    KernelSpec("matmul_codes", codes.matmul_codes, "linear",
               "x[M,K] w[N,bytes] out[M,N] ones[G,K/2]? extra..", _codes(1)),
    KernelSpec("matmul_codes_pair", codes.matmul_codes_pair, "linear",
               "x[M,K] w0[N,bytes] w1[N,bytes] out[M,N] ones[G,K/2]? extra..", _codes(2)),
    KernelSpec("bmm_nk", matmul.bmm_nk, "product", "a[B,M,K] b[B,N,K] out[B,M,N] extra..", _batched),
    KernelSpec("bmm_kn", matmul.bmm_kn, "product", "a[B,M,K] b[B,K,N] out[B,M,N] extra..", _batched),
    KernelSpec("map", elementwise.elementwise, "elementwise", "inputs.. out", _blocks_of_last),
    KernelSpec("copy", elementwise.copy, "movement", "x out", _blocks_of_last),
    KernelSpec("fill", elementwise.fill, "movement", "out", _blocks_of_last),
    KernelSpec("reduce", reduce.reduce, "reduction", "x[..] out[.., 1]", _around_axes),
    KernelSpec("cumsum", reduce.cumsum, "reduction", "x[..] out[..]", _around_axes),
    KernelSpec("softmax", normalise.softmax, "rows", "x[..,N] out[..,N]", _rows),
    KernelSpec("rmsnorm", normalise.rmsnorm, "rows", "x[..,N] weight[N] out[..,N] residual? total?", _rows),
    KernelSpec("layernorm", normalise.layernorm, "rows", "x[..,N] weight[N] bias[N] out[..,N]", _rows),
    KernelSpec("layernorm_plain", normalise.layernorm_plain, "rows", "x[..,N] weight[N] out[..,N]", _rows),
    KernelSpec("rotary", rotary.rotary, "attention", "x[H,C,D] cos[C,R/2] sin[C,R/2] out[H,C,D]", _heads_and_rows),
    KernelSpec("attention", attention.attention, "attention", _ATTENTION, attention_sizes.decomposed),
    KernelSpec("attention_flash", attention_flash.attention_flash, "attention", _ATTENTION, attention_sizes.flash),
    KernelSpec("attention_incremental", attention_incremental.attention_incremental, "attention", _ATTENTION,
               attention_sizes.incremental),
    KernelSpec("attention_sparse", attention_sparse.attention_sparse, "attention",
               "q[S,H,D] cache[N,D or bytes] indices[S,K] out[S,H,Dv] lengths[S]? sinks[H]? lse[S,H]? largest[S,H]?",
               attention_sizes.sparse),
    KernelSpec("attention_linear", attention_linear.attention_linear, "attention",
               "q[H,C,D] k[H,C,D] v[H,C,Dv] state[H,D,Dv] out[H,C,Dv] following[H,D,Dv] decays[H]?", _none),
    KernelSpec("topk", experts.topk, "rows", "x[..,N] values[..,k]? indices[..,k]?", _rows),
    KernelSpec("route", experts.route, "rows", "x[T,E] weights[T,k] indices[T,k]", _rows),
    KernelSpec("argmax", experts.argmax, "rows", "x[..,N] out[..,1]", _rows),
    KernelSpec("moe_chosen", experts.moe_chosen, "experts",
               "x[T,K] indices[T,k] weights[T,k] gate[E,F,K] up[E,F,K]? down[E,N,F] gate_bias[E,F]? up_bias[E,F]? "
               "down_bias[E,N]? out[T,N]", _chosen),
    KernelSpec("moe_all", experts.moe_all, "experts", "as moe_chosen", _all_experts),
    KernelSpec("gather_rows", rows.gather_rows, "rows", "table[V,..] ids[T] out[T,..]", _count("bt", 1)),
    KernelSpec("gather_codes", codes.gather_codes, "rows", "table[V,bytes] ids[T] out[T,K]", _count("bt", 1)),
    KernelSpec("scatter_rows", rows.scatter_rows, "rows", "x[N,W] ids[M] updates[M,W] out[N,W]", _scattered),
    KernelSpec("append_rows", rows.append_rows, "state", "new[G,C,D] state[G,N,D]", _count("bg", 0)),
    KernelSpec("ring_slots", ring.ring_slots, "state", "out[C]", _none),
    KernelSpec("ring_rows", ring.ring_rows, "state", "new[C,G,D] slots[C] ring[R,G,D]", _heads_of_rows),
    KernelSpec("attention_ring", ring.attention_ring, "attention",
               "q[H,C,D] k_new[G,C,D] v_new[G,C,Dv] k_past[G,N,D] v_past[G,N,Dv] out[H,C,Dv] slopes[H]? sinks[H]?",
               attention_sizes.decomposed),
    KernelSpec("depthwise", convolution.depthwise, "convolution", "x[T,C] weight[K,C] out[S,C] bias[C]?", _depthwise),
    KernelSpec("last_rows", convolution.last_rows, "state", "x[T,C] out[K,C]", _channels),
    KernelSpec("integer_linear", integers.integer_linear, "linear",
               "x[M,K] x_scale[1,1] x_zero[1,1] w[N,K] w_scale[1,N] w_sum[1,N] out[M,N] w_zero[1,N]?", _whole_rows),
    KernelSpec("integer_product", integers.integer_product, "product",
               "a[B,M,K] b[B,N,K] out[B,M,N] a_zero[1,1,1] b_zero[1,N,1]", _batched),
    KernelSpec("code_range", integers.code_range, "reduction", "x[M,K] scale[1,1] zero[1,1]", _count("bm", 0)),
    KernelSpec("valid_rows", integers.valid_rows, "rows", "x[G,C,K] out[G,C,K]", _blocks("bg", "bk")),
    KernelSpec("past_rows", rows.past_rows, "state", "past[G,N,D] out[G,N,D]", _blocks("bg", "bk")),
    KernelSpec("step_mask", rows.step_mask, "attention", "out[C,N+C]", _count("bm", 0)),
    KernelSpec("step_bias", rows.step_bias, "attention", "slopes[H] out[H,C,N+C]", _blocks("", "bm", array=1)),
    KernelSpec("valid_slots", rows.valid_slots, "state", "out[N,2]", _none),
    KernelSpec("step_rows", rows.step_rows, "state", "table[T,R] out[C,R]", _none),
)  # fmt: skip
KERNELS: dict[str, KernelSpec] = {spec.name: spec for spec in _SPECS}
FORMS: dict[str, dict[str, str]] = {
    "attention": {"decomposed": "attention", "flash": "attention_flash", "incremental": "attention_incremental"},
}
"""Kernels that compute the same from the same arrays and parameters, by the name of each form."""
