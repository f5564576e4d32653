"""The patterns of a range of problems: `?` where an extent is a size of the range."""

import re
from collections.abc import Sequence
from dataclasses import replace

from tilewise.kernels.dispatches.patterns.graph import ANY, Value
from tilewise.kernels.dispatches.patterns.pattern import ENTRY, SCOPE, WEIGHTS, Pattern, patterns
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
        replace(same[0], shape=_shape([one.shape or () for one in same])) for same in values
    )
    lines = []
    for dim in range(len(others)):
        at, axis = next(
            (value, value.shape.index(-1 - dim))
            for value in operands
            if value.shape and -1 - dim in value.shape
        )
        lines += [
            f"%axis{dim} = arith.constant {axis} : index",
            f"%size{dim} = tensor.dim {at.name}, %axis{dim} : {at.type}",
        ]
    return replace(own, operands=tuple(operands), result=result, text=text, sizes=tuple(lines))


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
        shape = tuple(size[-1 - one] if one < 0 else one for one in value.shape or ())
        return replace(value, shape=shape)

    return replace(pattern, operands=tuple(map(at, pattern.operands)), result=at(pattern.result))


def module_of_any_size(pattern: Pattern, *, has_constant_weights: bool) -> str:
    """Return a module that computes a range's pattern into its last argument, at any size."""
    given = list(pattern.operands)
    lines, head = [*pattern.sizes, *pattern.text.splitlines()], ""
    if has_constant_weights:
        weights = given.pop(1)
        kind = weights.type
        named = f'#flow.parameter.named<"{SCOPE}"::"{WEIGHTS}">'
        head = f"util.global private @weights = {named} : {kind}\n"
        lines.insert(0, f"{weights.name} = util.global.load @weights : {kind}")
    taken = "".join(f"{one.name}: {one.type}, " for one in given)
    body, kind = (
        "".join(f"  {line}\n" for line in lines).replace(f" {ANY}", ""),
        pattern.result.type,
    )
    return f"""{head}func.func @{ENTRY}({taken}%result: {kind} {{iree.abi.output = 0 : index}}) \
-> {kind} {{
{body}  func.return {pattern.result.name} : {kind}
}}
"""
