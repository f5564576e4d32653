"""The driver of an exported module: the printed one with its sizes filled in."""

import ast

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.macrokernel.parameters import (
    BARRIER,
    COUNT,
    PARTS,
    REPEAT,
    Addresses,
    bounds,
    names_of,
)
from tilewise.kernels.native.plan import Plan

WIDTH = 100


_ENTRY = """

@cfunc("void(int64)")
def entry(p):
    driver(p)
"""


def driver_text(planned: Plan, functions: dict[str, str]) -> str:
    """The printed driver as a function of addresses alone, its sizes filled in.

    One that runs on several threads takes the address of its `arguments` instead, and one
    whose weights are packed ahead has `prepare` beside it.

    Raises:
        LoweringError: the driver takes something that a module of its own cannot have.
    """
    given = arguments(planned)
    is_ahead = "prepare" in functions_of(planned)
    where = "ADDRESSES" if is_ahead else "kernel_addresses()"
    if len(planned.nest.parts) == 1:
        text = _function_text(planned, functions, "driver", given, where)
    else:
        text = _function_text(planned, functions, "driver", given, where, by_table=True) + _ENTRY
    if is_ahead:
        text += "\n\n" + _function_text(planned, functions, "prepare", ("b", "b_panels"), where)
    return text


def arguments(planned: Plan) -> tuple[str, ...]:
    """What a call gives to the driver: addresses, and the part of each thread if there are."""
    parts = planned.nest.parts
    edges = [edge for dim in parts[0] for edge in bounds(dim)]
    return (*names_of(Addresses), *([BARRIER, *edges] if len(parts) > 1 else []))


def functions_of(planned: Plan) -> dict[str, ast.FunctionDef]:
    """The printed functions, by name."""
    source = ast.parse(planned.source.text)
    return {node.name: node for node in source.body if isinstance(node, ast.FunctionDef)}


def _function_text(
    planned: Plan,
    functions: dict[str, str],
    name: str,
    given: tuple[str, ...],
    where: str,
    by_table: bool = False,
) -> str:
    """One printed function, of `given` or of the address of a table of them."""
    body = [kept for node in functions_of(planned)[name].body for kept in filled(node)]
    used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    named = [name for name in planned.source.parameters if name in used]
    sizes = planned.sizes | {PARTS: len(planned.nest.parts)}
    unknown = [name for name in named if name not in {*given, *functions, *sizes}]
    if unknown:
        raise LoweringError(f"the driver takes {unknown[0]}, which no exported kernel has")
    lines = ["@njit(nogil=True)", f"def {name}({'p' if by_table else ', '.join(given)}):"]
    unpacked = ", ".join(functions) if len(functions) > 1 else f"({next(iter(functions))},)"
    lines.append(f"    {unpacked} = {where}")
    if by_table:
        lines += [f"    {one} = word(p, {i})" for i, one in enumerate(given) if one in used]
    lines += [f"    {one} = {sizes[one]}" for one in named if one in sizes]
    text = "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in body)
    lines += [f"    {line}" for line in text.splitlines()]
    return "\n".join(map(wrapped, lines)) + "\n"


def wrapped(line: str) -> str:
    """A line of source, broken after commas within brackets where it is too long."""
    margin = " " * (len(line) - len(line.lstrip()) + 4)
    lines: list[str] = []
    start, last, depth = 0, 0, 0
    for index, character in enumerate(line):
        if index - start >= WIDTH - len(margin) * bool(lines) and last > start:
            lines.append(line[start:last])
            start = last
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth > 0:
            last = index + 1
    lines.append(line[start:])
    return f"\n{margin}".join([lines[0], *(part.strip() for part in lines[1:])])


def filled(node: ast.stmt) -> list[ast.stmt]:
    """A statement without what only the search needs: parameters, repeats and counters."""
    if isinstance(node, ast.Assign) and _reads(node.value, "p"):
        return []
    if isinstance(node, ast.For) and _reads(node.iter, REPEAT):
        return [kept for inner in node.body for kept in filled(inner)]
    if isinstance(node, ast.If) and _reads(node.test, COUNT):
        return []
    if isinstance(node, ast.If) and _is_same(node.test):
        return [kept for inner in node.body for kept in filled(inner)]
    if isinstance(node, ast.For | ast.If):
        node.body = [kept for inner in node.body for kept in filled(inner)]
        return [node]
    folded = _Folded().visit(node)
    assert isinstance(folded, ast.stmt)
    return [folded]


class _Folded(ast.NodeTransformer):
    """Drops what a printer for every structure leaves behind: `x - 0`, `0 * x`, `0 == 0`."""

    def visit(self, node: ast.AST) -> ast.AST:
        """The simpler form of a node whose parts are simple already."""
        node = self.generic_visit(node)
        if isinstance(node, ast.IfExp) and _is_same(node.test):
            return node.body
        if not isinstance(node, ast.BinOp):
            return node
        if isinstance(node.op, ast.Mult) and (_is_zero(node.left) or _is_zero(node.right)):
            return ast.Constant(0)
        if isinstance(node.op, ast.Add | ast.Sub) and _is_zero(node.right):
            return node.left
        if isinstance(node.op, ast.Add) and _is_zero(node.left):
            return node.right
        return node


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _is_same(test: ast.expr) -> bool:
    """Whether a test compares a thing with itself for equality."""
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and ast.dump(test.left) == ast.dump(test.comparators[0])
    )


def _reads(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))
