"""Ranges of problems: one or two sizes are chosen where the kernel is called."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.base import JsonValue, Problem
from tilewise.kernels.problem.parse import parse_problem, read_problem
from tilewise.kernels.quoting import quoted

MOST_SIZES = 4096
MOST_DIMS = 2
_RANGE = re.compile(r"(\d{1,10})\.\.(\d{1,10})(?::(\d{1,10}))?", re.ASCII)

Size = tuple[int, ...]
"""A size of a range: the value of each of its dims."""


@dataclass(frozen=True)
class ProblemRange:
    """Problems that differ in one or two dims, such as `matmul:m=1..512,n=4096,k=4096,dtype=f32`.

    Attributes:
        smallest: the problem of the first size.
        dims: the keys that have ranges, in the order of `DIMS`.
        ranges: the values of each; the step is the number that they are multiples of.
    """

    DIMS: ClassVar[dict[str, tuple[str, ...]]] = {
        "matmul": ("batch", "m", "n", "k"),
        "conv2d": ("n",),
        "conv3d": ("n",),
    }

    smallest: Problem
    dims: tuple[str, ...]
    ranges: tuple[range, ...]

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """Return all sizes in row-major order: the last dim varies fastest."""
        return tuple(product(*self.ranges))

    def at(self, size: Size) -> Problem:
        """Return the problem of one size; raise ProblemError for one that is not in the range."""
        for dim, value, values in zip(self.dims, size, self.ranges, strict=True):
            if value not in values:
                raise ProblemError(
                    f"{self.smallest.op}: {dim}={value} is not in {_text(values)}", dim
                )
        return parse_problem({**self.smallest.to_json(), **dict(zip(self.dims, size, strict=True))})

    def size_of(self, problem: Problem) -> Size:
        """Return the values of the dims in a problem of the same operation."""
        return tuple(getattr(problem, dim) for dim in self.dims)

    def holds(self, problem: Problem) -> bool:
        """Return whether a problem is one of the range."""
        if problem.op != self.smallest.op:
            return False
        size = self.size_of(problem)
        return all(map(range.__contains__, self.ranges, size)) and self.at(size) == problem

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form: that of a problem, with the ranges as text."""
        known = self.smallest.to_json() | dict(zip(self.dims, map(_text, self.ranges), strict=True))
        keys = ["op", *(field.name for field in fields(self.smallest))]
        return {key: known[key] for key in keys if key in known}

    @property
    def canonical(self) -> str:
        """Return the one string of this range."""
        pairs = (
            key if value is True else f"{key}={value}"
            for key, value in self.to_json().items()
            if key != "op"
        )
        return f"{self.smallest.op}:{','.join(pairs)}"

    @property
    def key(self) -> str:
        """Return the SHA-256 of the canonical string, hex."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def __str__(self) -> str:
        return self.canonical


def parse_range(source: str | Mapping[str, object]) -> ProblemRange:
    """Read a range of problems, as `parse_problem` reads one problem.

    Raises:
        ProblemError: as `parse_problem`; or no dim or more than `MOST_DIMS` have ranges, or there
            are more than `MOST_SIZES` sizes, or a range has fewer than two.
    """
    operation, values = read_problem(source)
    op, allowed = operation.op, ProblemRange.DIMS[operation.op]
    found = {key: match for key, value in values.items() if (match := _matched(value))}
    if not 0 < len(found) <= MOST_DIMS:
        given = f"{' and '.join(found)} have one" if found else "none has one"
        raise ProblemError(
            f"{op}: one or two sizes have a range, such as m=1..512; {given}",
            next(iter(found), "problem"),
        )
    for dim in found:
        if dim not in allowed:
            others = ", ".join(allowed)
            raise ProblemError(
                f"{op}: {dim} has no ranges; sizes that may have one are {others}", dim
            )
    dims = tuple(dim for dim in allowed if dim in found)
    ranges = tuple(_range(op, dim, found[dim]) for dim in dims)
    if (count := prod(map(len, ranges))) > MOST_SIZES:
        given = " and ".join(f"{dim}={quoted(found[dim][0])}" for dim in dims)
        raise ProblemError(
            f"{op}: {count} sizes in {given}, more than {MOST_SIZES}; give multiples, as "
            "64..65536:64",
            dims[0],
        )
    first = {"op": op, **values} | {dim: sizes[0] for dim, sizes in zip(dims, ranges, strict=True)}
    smallest = parse_problem(first)
    for dim, sizes in zip(dims, ranges, strict=True):
        last = parse_problem({**first, dim: sizes[-1]})
        _check_constant(smallest, last, dim, found[dim][0])
    made = ProblemRange(smallest, dims, ranges)
    made.at(made.sizes[-1])  # may be too large where its dims alone are not
    return made


def _check_constant(first: Problem, last: Problem, dim: str, text: str) -> None:
    """Raise ProblemError where a dim changes other keys or the shape of constant weights."""
    if {**first.to_json(), dim: 0} != {**last.to_json(), dim: 0}:
        why = f"{dim}={text} changes other keys: {first} and {last}; give two ranges"
        raise ProblemError(f"{first.op}: {why}", dim)
    shapes = [end.operand_shapes["B"] for end in (first, last)]
    if first.has_constant_weights and shapes[0] != shapes[1]:
        raise ProblemError(
            f"{first.op}: weights=constant are packed once, and {dim} changes their shape; "
            "leave weights out, or give a range of another size",
            dim,
        )


def parse_any(source: str | Mapping[str, object]) -> Problem | ProblemRange:
    """Read a problem, or a range of problems where a size of it is one."""
    _, values = read_problem(source)
    return parse_range(source) if any(map(_matched, values.values())) else parse_problem(source)


def _matched(value: object) -> re.Match[str] | None:
    return _RANGE.fullmatch(value) if isinstance(value, str) else None


def _range(op: str, dim: str, match: re.Match[str]) -> range:
    first, last, step = (int(number) for number in match.groups(default="1"))
    sizes = range(0)
    if step:
        sizes = range(-(-max(first, 1) // step) * step, last // step * step + 1, step)
    if len(sizes) < 2:
        why = "holds no two sizes; give the smaller one first"
        raise ProblemError(f"{op}: {dim}={quoted(match[0])} {why}", dim)
    return sizes


def _text(sizes: range) -> str:
    """Return a range as keys have it: `1..512`, or `8..512:8` for multiples."""
    return f"{sizes[0]}..{sizes[-1]}" + (f":{sizes.step}" if sizes.step > 1 else "")


def sizes_text(dims: Sequence[str], first: Size, last: Size) -> str:
    """Return the sizes between two corners, such as `batch=1,m=1..64`."""
    return ",".join(
        f"{dim}={a}" if a == b else f"{dim}={a}..{b}"
        for dim, a, b in zip(dims, first, last, strict=True)
    )


def to_plain(values: Size) -> int | Size:
    """Return the values of a range's dims as JSON has them: of a single dim a number."""
    return values[0] if len(values) == 1 else values


def from_plain(values: int | Sequence[int]) -> Size:
    """Return the values of a range's dims that `to_plain` gave."""
    return (values,) if isinstance(values, int) else tuple(values)
