"""The kernels by name, with the tile sizes that are worth trying for given arrays, the largest first."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npuc.tile import ArrayType, Kernel
from npukernels import attention, elementwise, matmul, normalise, reduce, rotary, rows

Types = Sequence[ArrayType | None]
Sizes = dict[str, Any]
PANEL = 16  # output channels that the DPU writes at once: blocks of columns are multiples of it


@dataclass(frozen=True)
class KernelSpec:
    """A kernel of the library.

    family: what it is for; form: its arrays and their shapes. candidates(types, params): tile-size parameters for
    arrays of these types under the other parameters, in the order in which they should be tried.
    """

    name: str
    kernel: Kernel
    family: str
    form: str
    candidates: Callable[[Types, Mapping[str, Any]], Iterator[Sizes]]


def get(name: str) -> KernelSpec:
    """The kernel of a name; "map3" is "map" for three inputs. KeyError with the known names."""
    key = "map" if name.startswith("map") and name[3:].isdigit() else name
    if key not in KERNELS:
        raise KeyError(f"no kernel {name!r}; there are {', '.join(KERNELS)}")
    return KERNELS[key]


def _halvings(extent: int, multiple: int = 1) -> Iterator[int]:
    """extent, then ever smaller sizes that are multiples of `multiple`, each about half of the last."""
    size = max(extent, 1)
    yield size
    while size > multiple:
        size = max(multiple, -(-size // 2 // multiple) * multiple)
        yield size


def _shape(types: Types, number: int) -> tuple[int, ...]:
    type_ = types[number]
    assert type_ is not None  # optional arrays are never the ones that tile sizes follow
    return type_.shape


def _matrix(types: Types, params: Mapping[str, Any]) -> Iterator[Sizes]:
    """All of K while any block of columns fits so, few rows last; then K in halves under the smallest block."""
    (m, k), n = _shape(types, 0), _shape(types, 1)[0]
    for bm in _halvings(m, PANEL):
        for bn in _halvings(n, PANEL):
            yield {"bm": bm, "bn": bn, "bk": k}
    for bk in list(_halvings(k, PANEL))[1:]:
        yield {"bm": min(m, PANEL), "bn": min(n, PANEL), "bk": bk}


def _batched(types: Types, params: Mapping[str, Any]) -> Iterator[Sizes]:
    batch, m, n = _shape(types, 2)
    for bb in _halvings(batch):
        yield {"bb": bb, "bm": m, "bn": n}
    for bn in list(_halvings(n, PANEL))[1:]:
        yield {"bb": 1, "bm": m, "bn": bn}
    for bm in list(_halvings(m))[1:]:
        yield {"bb": 1, "bm": bm, "bn": min(n, PANEL)}


def _shrinking(shape: Sequence[int], fixed: Sequence[int] = ()) -> Iterator[tuple[int, ...]]:
    """Blocks of `shape`: outer axes are halved to 1 before inner ones start; axes in `fixed` stay whole."""
    size = [max(extent, 1) for extent in shape]
    yield tuple(size)
    for axis in [d for d in range(len(size)) if d not in fixed]:
        while size[axis] > 1:
            size[axis] = -(-size[axis] // 2)
            yield tuple(size)


def _blocks_of_last(types: Types, params: Mapping[str, Any]) -> Iterator[Sizes]:
    return ({"tile": tile} for tile in _shrinking(_shape(types, len(types) - 1)))


def _rows(types: Types, params: Mapping[str, Any]) -> Iterator[Sizes]:
    shape = _shape(types, 0)
    return ({"tile": tile} for tile in _shrinking(shape, (len(shape) - 1,)))


def _around_axes(types: Types, params: Mapping[str, Any]) -> Iterator[Sizes]:
    shape = _shape(types, 0)
    axes = params.get("axes") or (params.get("axis", -1),)
    return ({"tile": tile} for tile in _shrinking(shape, [axis % len(shape) for axis in axes]))


def _heads_and_rows(types: Types, params: Mapping[str, Any]) -> Iterator[Sizes]:
    return ({"bh": bh, "bc": bc} for bh, bc in _shrinking(_shape(types, 0)[:2]))


def _attention(types: Types, params: Mapping[str, Any]) -> Iterator[Sizes]:
    """Fewer key heads in a program, then shorter key blocks, then fewer rows."""
    rows, groups = _shape(types, 0)[1], _shape(types, 1)[0]
    past = 0 if types[3] is None else _shape(types, 3)[1]
    for bk in [size for size in (256, 128, 64, 32) if size < max(past, 1) * 2] or [32]:
        for count in _halvings(groups):
            yield {"bm": rows, "groups": count, "bk": bk}
    for bm in list(_halvings(rows))[1:]:
        yield {"bm": bm, "groups": 1, "bk": 64}


def _count(name: str, axis_of: int) -> Callable[[Types, Mapping[str, Any]], Iterator[Sizes]]:
    """One size, along the first axis of an array."""
    return lambda types, params: ({name: size} for size in _halvings(_shape(types, axis_of)[0]))


KERNELS: dict[str, KernelSpec] = {
    spec.name: spec
    for spec in (
        KernelSpec("matmul", matmul.matmul, "linear", "x[M,K] w[N,K] out[M,N] table[N,2]? extra..", _matrix),
        KernelSpec("matmul_bias", matmul.matmul, "linear", "x[M,K] w[N,K] out[M,N] table[N,2]", _matrix),
        KernelSpec("matmul_pair", matmul.matmul_pair, "linear", "x[M,K] w0[N,K] w1[N,K] out[M,N] tables? extra..", _matrix),
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
        KernelSpec(
            "attention", attention.attention, "attention",
            "q[H,C,D] k_new[G,C,D] v_new[G,C,Dv] k_past[G,N,D]? v_past[G,N,Dv]? out[H,C,Dv]", _attention,
        ),
        KernelSpec("gather_rows", rows.gather_rows, "rows", "table[V,..] ids[T] out[T,..]", _count("bt", 1)),
        KernelSpec("append_rows", rows.append_rows, "state", "new[G,C,D] state[G,N,D]", _count("bg", 0)),
        KernelSpec("step_rows", rows.step_rows, "state", "table[T,R] out[C,R]", lambda types, params: iter([{}])),
    )
}  # fmt: skip
