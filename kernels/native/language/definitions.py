"""What drivers are written in: functions of i64s, found in source for Numba and not imported.

A driver is printed (`tilewise.kernels.native.macrokernel.printer`), and what it calls lies in the
modules of `LANGUAGE`. Importing those loads Numba, so their sources are read.
"""

import ast
import functools
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LANGUAGE = ("packs.py", "transforms.py", "barrier.py")
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.LShift: operator.lshift, ast.BitOr: operator.or_,
}  # fmt: skip


@dataclass(frozen=True)
class Definitions:
    """Functions of the language, and the constants that they name."""

    functions: Mapping[str, ast.FunctionDef]
    constants: Mapping[str, int]


@functools.cache
def language() -> Definitions:
    """What drivers may call. The sources are read, not imported, for importing loads Numba."""
    functions: dict[str, ast.FunctionDef] = {}
    constants: dict[str, int] = {}
    for name in LANGUAGE:
        found = definitions(Path(__file__).with_name(name).read_text())
        functions |= found.functions
        constants |= found.constants
    return Definitions(functions, constants)


def definitions(text: str) -> Definitions:
    """The functions that `text` has for Numba to compile, and its integer constants."""
    functions: dict[str, ast.FunctionDef] = {}
    constants: dict[str, int] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and _is_for_numba(node):
            functions[node.name] = node
        elif isinstance(node, ast.Assign):
            constants |= _constants(node, constants)
    return Definitions(functions, constants)


def _is_for_numba(node: ast.FunctionDef) -> bool:
    names = {n.id for d in node.decorator_list for n in ast.walk(d) if isinstance(n, ast.Name)}
    return "njit" in names


def _constants(node: ast.Assign, known: Mapping[str, int]) -> dict[str, int]:
    """The names that an assignment of integers binds; none of any other assignment."""
    found: dict[str, int] = {}
    for target, expression in _pairs(node):
        value = _integer(expression, known)
        if isinstance(target, ast.Name) and value is not None:
            found[target.id] = value
    return found


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with what it is bound to."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def _integer(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """The value of integers and names of known ones under operators; None for anything else."""
    match node:
        case ast.Constant(value=int(value)):
            return int(value)
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, right=right) if type(node.op) in _OPERATORS:
            first, second = _integer(left, known), _integer(right, known)
            if first is not None and second is not None:
                return _OPERATORS[type(node.op)](first, second)
    return None


def times_written(statements: Iterable[ast.stmt]) -> Counter[str]:
    """In how many places each name gets a value; one under a condition counts as two.

    What is written in one place, with no condition around it, a later use in the same block,
    or in one inside, finds as that value.
    """
    times: Counter[str] = Counter()
    for node in statements:
        targets: list[ast.expr] = []
        match node:
            case ast.Assign():
                targets = node.targets
            case ast.AugAssign():
                targets = [node.target]
            case ast.For():
                targets = [node.target]
                times += times_written(node.body)
            case ast.If() | ast.While():
                inside = times_written([*node.body, *node.orelse])
                times += inside + inside
        times.update(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
    return times


def gives_a_value(statements: Iterable[ast.stmt]) -> bool:
    """Whether a function with these statements gives a value."""
    for node in statements:
        match node:
            case ast.Return(value=value) if value is not None:
                return True
            case ast.For() | ast.If() | ast.While() if gives_a_value([*node.body, *node.orelse]):
                return True
    return False
