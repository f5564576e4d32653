"""Ranges of problems: one size is chosen where the kernel is called, all others are known."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.base import JsonValue, Problem
from tilewise.kernels.problem.parse import parse_problem, read_problem
from tilewise.kernels.quoting import quoted

MOST_SIZES = 4096
_RANGE = re.compile(r"(\d{1,10})\.\.(\d{1,10})(?::(\d{1,10}))?", re.ASCII)


@dataclass(frozen=True)
class ProblemRange:
    """Problems that differ in one size, such as `matmul:m=1..512,n=4096,k=4096,dtype=f32`.

    Attributes:
        smallest: the problem of the first size.
        dim: the key of the size, one of `DIMS`.
        sizes: all that it may be; the step is the number that they are multiples of.
    """

    DIMS: ClassVar[dict[str, tuple[str, ...]]] = {
        "matmul": ("batch", "m", "n", "k"),
        "conv2d": ("n",),
    }

    smallest: Problem
    dim: str
    sizes: range

    def at(self, size: int) -> Problem:
        """Return the problem of one size; raise ProblemError for one that is not in the range."""
        if size not in self.sizes:
            raise ProblemError(
                f"{self.smallest.op}: {self.dim}={size} is not in {self.text}", self.dim
            )
        return parse_problem({**self.smallest.to_json(), self.dim: size})

    def holds(self, problem: Problem) -> bool:
        """Return whether a problem is one of the range."""
        size = getattr(problem, self.dim, 0)
        return size in self.sizes and self.at(size) == problem

    @property
    def text(self) -> str:
        """Return the sizes as keys have them: `1..512`, or `8..512:8` for multiples."""
        step = self.sizes.step
        return f"{self.sizes[0]}..{self.sizes[-1]}" + (f":{step}" if step > 1 else "")

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form: that of a problem, with the sizes as text."""
        known = self.smallest.to_json() | {self.dim: self.text}
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
        ProblemError: as `parse_problem`; or no size or several are ranges, or a range is empty, has
            a single size or more than `MOST_SIZES`.
    """
    operation, values = read_problem(source)
    found = {key: match for key, value in values.items() if (match := _matched(value))}
    if len(found) != 1:
        given = f"{' and '.join(found)} have one" if found else "none has one"
        raise ProblemError(
            f"{operation.op}: one size has a range, such as m=1..512; {given}",
            next(iter(found), "problem"),
        )
    ((dim, match),) = found.items()
    allowed = ProblemRange.DIMS[operation.op]
    if dim not in allowed:
        raise ProblemError(
            f"{operation.op}: {dim} has no ranges; sizes that may have one are "
            f"{', '.join(allowed)}",
            dim,
        )
    sizes = _sizes(operation.op, dim, match)
    ends = [parse_problem({"op": operation.op, **values, dim: sizes[at]}) for at in (0, -1)]
    others = [{**end.to_json(), dim: 0} for end in ends]
    if others[0] != others[1]:
        why = f"{dim}={match[0]} changes other keys: {ends[0]} and {ends[1]}; give two ranges"
        raise ProblemError(f"{operation.op}: {why}", dim)
    shapes = [end.operand_shapes["B"] for end in ends]
    if ends[0].has_constant_weights and shapes[0] != shapes[1]:
        raise ProblemError(
            f"{operation.op}: weights=constant are packed once, and {dim} changes their shape; "
            "leave weights out, or give a range of another size",
            dim,
        )
    return ProblemRange(ends[0], dim, sizes)


def parse_any(source: str | Mapping[str, object]) -> Problem | ProblemRange:
    """Read a problem, or a range of problems where a size of it is one."""
    _, values = read_problem(source)
    return parse_range(source) if any(map(_matched, values.values())) else parse_problem(source)


def _matched(value: object) -> re.Match[str] | None:
    return _RANGE.fullmatch(value) if isinstance(value, str) else None


def _sizes(op: str, dim: str, match: re.Match[str]) -> range:
    first, last, step = (int(number) for number in match.groups(default="1"))
    sizes = range(0)
    if step:
        sizes = range(-(-max(first, 1) // step) * step, last // step * step + 1, step)
    why = None
    if len(sizes) < 2:
        why = "holds no two sizes; give the smaller one first"
    elif len(sizes) > MOST_SIZES:
        why = f"has {len(sizes)} sizes, more than {MOST_SIZES}; give multiples, as 64..65536:64"
    if why:
        raise ProblemError(f"{op}: {dim}={quoted(match[0])} {why}", dim)
    return sizes
