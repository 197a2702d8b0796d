"""Affine integers: what program ids and step-block fields are while a kernel is traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npuc.tile.errors import refused

Term = int | str  # a grid axis, or the name of a step-block field


class SplitNeeded(Exception):
    """A decision at trace time depends on the program id of `axis`: the class of programs must be traced apart."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        super().__init__(f"the trace depends on program id {axis}")


@dataclass(frozen=True, slots=True)
class Condition:
    """above < step[field] <= most, either bound None where there is none: what `when` takes."""

    field: str
    above: Affine | None = None
    most: Affine | None = None

    def __and__(self, other: Condition) -> Condition:
        """A range, from a lower and an upper bound of one field."""
        if not isinstance(other, Condition):
            return NotImplemented
        low, high = (self, other) if self.most is None else (other, self)
        if self.field != other.field or low.above is None or low.most is not None or high.above is not None:
            raise refused(
                f"({self}) & ({other}): a range has one lower and one upper bound of one field of the step block, "
                "such as (t.step.n_past > a) & (t.step.n_past <= b)"
            )
        return Condition(self.field, low.above, high.most)

    def __bool__(self) -> bool:
        raise refused(
            f"{self} is only known when the device runs; write `with t.when(...)` in place of `if` or `while`, "
            "and (a) & (b) for a range"
        )

    def holds(self, pids: Sequence[int], step: Mapping[str, int]) -> bool:
        """Whether it holds in one program."""
        value = step[self.field]
        above = self.above is None or value > self.above.at(pids)
        return above and (self.most is None or value <= self.most.at(pids))

    def __str__(self) -> str:
        signs = ((">", self.above), ("<=", self.most))
        return " and ".join(f"step.{self.field} {sign} {bound}" for sign, bound in signs if bound is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """const + sum of coefficient x term. Terms are grid axes (int) and step fields (str), each at most once.

    bounds: for each grid axis the first and last program id of the class that is being traced.
    """

    const: int
    terms: tuple[tuple[Term, int], ...] = ()
    bounds: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: int | Affine) -> Affine:
        return self._combine(other, 1)

    __radd__ = __add__

    def __sub__(self, other: int | Affine) -> Affine:
        return self._combine(other, -1)

    def __rsub__(self, other: int | Affine) -> Affine:
        return (-self)._combine(other, 1)

    def __mul__(self, other: int | Affine) -> Affine:
        factor = other.const if isinstance(other, Affine) and not other.terms else other
        if not isinstance(factor, int):
            return NotImplemented
        if factor == 0:
            return Affine(0, (), self.bounds)
        return Affine(self.const * factor, tuple((term, c * factor) for term, c in self.terms), self.bounds)

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return Affine(-self.const, tuple((term, -c) for term, c in self.terms), self.bounds)

    def _combine(self, other: int | Affine, sign: int) -> Affine:
        if isinstance(other, int):
            return Affine(self.const + sign * other, self.terms, self.bounds)
        if not isinstance(other, Affine):
            return NotImplemented
        total: dict[Term, int] = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) + sign * coefficient
        kept = tuple((term, c) for term, c in sorted(total.items(), key=lambda item: str(item[0])) if c)
        return Affine(self.const + sign * other.const, kept, self.bounds or other.bounds)

    @property
    def step_field(self) -> str | None:
        """The step field in this value, None where there is none."""
        fields = [term for term, _ in self.terms if isinstance(term, str)]
        if len(fields) > 1:
            raise refused(f"{self} uses two fields of the step block; one index can add only one")
        return fields[0] if fields else None

    def without_step(self) -> Affine:
        return Affine(self.const, tuple((term, c) for term, c in self.terms if isinstance(term, int)), self.bounds)

    def at(self, pids: Sequence[int], step: Mapping[str, int] | None = None) -> int:
        """The number for one program, and one step block where a field takes part."""
        total = self.const
        for term, coefficient in self.terms:
            if isinstance(term, int):
                total += coefficient * pids[term]
            elif step is None:
                raise ValueError(f"{self} needs the step block")
            else:
                total += coefficient * step[term]
        return total

    def range(self) -> tuple[int, int]:
        """Smallest and largest value over the class of programs (the step fields left out)."""
        low = high = self.const
        for term, coefficient in self.terms:
            if isinstance(term, int):
                ends = [coefficient * bound for bound in self.bounds[term]]
                low, high = low + min(ends), high + max(ends)
        return low, high

    def __int__(self) -> int:
        """The value, where it is one number for the whole class; else the class is split and traced again."""
        if self.step_field is not None:
            raise refused(f"{self} is only known when the device runs; use it in tile arithmetic, valid= or when()")
        for term, _ in self.terms:
            if isinstance(term, int) and self.bounds[term][0] != self.bounds[term][1]:
                raise SplitNeeded(term)
        return self.range()[0]

    __index__ = __int__

    def __floordiv__(self, other: int) -> int:
        return int(self) // int(other)

    def __mod__(self, other: int) -> int:
        return int(self) % int(other)

    def __gt__(self, other: object) -> Any:
        return self._compare(other, 0)

    def __ge__(self, other: object) -> Any:
        return self._compare(other, -1)

    def _compare(self, other: object, shift: int, above: bool = True) -> Any:
        """self > other + shift (not above: <=), as a bool, or as a condition where a step field decides."""
        if not isinstance(other, (int, Affine)):
            return NotImplemented
        field = self.step_field
        if field is None:
            return (int(self) > int(other) + shift) == above
        if dict(self.terms)[field] != 1 or affine(other).step_field is not None:
            raise refused(f"a condition must have the form step.{field} > number, got {self} > {other}")
        bound = affine(other) - self.without_step() + shift
        return Condition(field, above=bound) if above else Condition(field, most=bound)

    def __lt__(self, other: object) -> Any:
        return self._compare(other, -1, above=False)

    def __le__(self, other: object) -> Any:
        return self._compare(other, 0, above=False)

    def __eq__(self, other: object) -> bool:
        return int(self) == int(other) if isinstance(other, (int, Affine)) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.const, self.terms))

    def __str__(self) -> str:
        parts = []
        for term, coefficient in self.terms:
            name = f"step.{term}" if isinstance(term, str) else f"program[{term}]"
            parts.append(name if coefficient == 1 else f"{coefficient} * {name}")
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts).replace("+ -", "- ")


Index = int | Affine


def affine(value: Index) -> Affine:
    """`value` as an affine expression."""
    return value if isinstance(value, Affine) else Affine(value)
