"""Rows by number: embedding lookup, and new rows of a state."""

from npuc import tile as t


@t.kernel
def gather_rows(table: t.Array, ids: t.Array, out: t.Array, *, bt: int) -> None:
    """out[T, ...] = table[ids[T], ...]; a number outside the table gives zeros. bt: rows of a block."""
    (i,) = t.programs(t.cdiv(ids.shape[0], bt))
    t.store(out, (i * bt, *(0 for _ in out.shape[1:])), t.gather(table, t.load(ids, (i * bt,), (bt,))))


@t.kernel
def append_rows(new: t.Array, state: t.Array, *, bg: int) -> None:
    """state[G, N, D] gets the first step.n_new rows of new[G, C, D] at row step.n_past. bg: heads of a block."""
    (g,) = t.programs(t.cdiv(new.shape[0], bg))
    block = t.load(new, (g * bg, 0, 0), (bg, *new.shape[1:]))
    t.store(state, (g * bg, t.step.n_past, 0), block, valid=(1, t.step.n_new))


@t.kernel
def step_rows(table: t.Array, out: t.Array) -> None:
    """out[C, R] = table[step.n_past : step.n_past + C, :], the rows of this step's positions."""
    t.store(out, (0, 0), t.load(table, (t.step.n_past, 0), out.shape))
