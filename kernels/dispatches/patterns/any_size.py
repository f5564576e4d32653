"""The patterns of a range of problems: `?` where an extent is a size of the range."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tilewise.kernels.dispatches.patterns.graph import Value
from tilewise.kernels.dispatches.patterns.pattern import Pattern, patterns
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import Problem, ProblemRange, Size, parse_problem

_EMPTY = re.compile(r"tensor\.empty \(\)(.* : tensor<([^>]*)>)")
_SIZES = 2, 3  # no dim is dropped at one of these


def range_patterns(problems: ProblemRange) -> tuple[Pattern, ...]:
    """Return the distinct patterns of a range: those of one size, with `?` for what depends on it.

    Raises:
        UnsupportedError: as `pattern`; or the problem adds to its result.
    """
    if problems.smallest.accumulates:
        raise UnsupportedError(
            f"{problems} has no dispatch: init=accumulate; give a single size", "init"
        )
    patterns(problems.smallest)  # refuses
    low = dict.fromkeys(problems.dims, _SIZES[0])
    own = patterns(_at(problems, low))
    others = [patterns(_at(problems, {**low, dim: _SIZES[1]})) for dim in problems.dims]
    return tuple(_of_any_size(*same) for same in zip(own, *others, strict=True))


def _at(problems: ProblemRange, sizes: dict[str, int]) -> Problem:
    return parse_problem({**problems.smallest.to_json(), **sizes})


def _of_any_size(own: Pattern, *others: Pattern) -> Pattern:
    """Return a pattern whose numbers that differ in `others[i]` are size i."""
    split = [re.split(r"(\d+)", one.text) for one in (own, *others)]
    text = "".join(_marked(tokens) for tokens in zip(*split, strict=True))
    text = _EMPTY.sub(_with_sizes, text)
    text = re.sub(r"\?(\d)\?", r"%size\1", re.sub(r"\?\d\?x", "?x", text))
    values = zip(*((*one.operands, one.result) for one in (own, *others)), strict=True)
    *operands, result = (
        replace(same[0], shape=_shape([one.shape for one in same])) for same in values
    )
    lines = [line for dim in range(len(others)) for line in size_lines(operands, dim)]
    return replace(own, operands=tuple(operands), result=result, text=text, sizes=tuple(lines))


def size_lines(operands: Sequence[Value], number: int) -> list[str]:
    """Return the lines that read a size from an operand with that extent; none without one."""
    for value in operands:
        if value.shape and -1 - number in value.shape:
            axis = value.shape.index(-1 - number)
            return [
                f"%axis{number} = arith.constant {axis} : index",
                f"%size{number} = tensor.dim {value.name}, %axis{number} : {value.type}",
            ]
    return []


def _marked(tokens: Sequence[str]) -> str:
    """Return a token of all texts, or the size that it is as `?0?`."""
    own, *others = tokens
    dims = [dim for dim, other in enumerate(others) if other != own]
    return f"?{dims[0]}?" if dims else own


def _with_sizes(match: re.Match[str]) -> str:
    sizes = ", ".join(f"%size{dim}" for dim in re.findall(r"\?(\d)\?", match[2]))
    return f"tensor.empty ({sizes}){match[1]}"


def _shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return extents; size i of a range is -1 - i."""
    return tuple(
        next((-1 - dim for dim, other in enumerate(others) if other != own), own)
        for own, *others in zip(*shapes, strict=True)
    )


def of_size(pattern: Pattern, size: Size) -> Pattern:
    """Return a pattern with the extents that its operands and its result have at a size."""

    def at(value: Value) -> Value:
        shape = tuple(size[-1 - one] if one < 0 else one for one in value.shape)
        return replace(value, shape=shape)

    return replace(pattern, operands=tuple(map(at, pattern.operands)), result=at(pattern.result))
