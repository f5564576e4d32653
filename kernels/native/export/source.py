"""The Python source of a kernel: its macro-kernel and the definitions that it uses.

Source is moved as syntax trees: sizes are filled in, annotations dropped, imports of this project
replaced by the definitions, and llvmlite is reached through numba.
"""

import ast
import importlib
import inspect
from collections.abc import Container
from dataclasses import dataclass, field

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
from tilewise.kernels.native.plan import KernelPlan

WIDTH = 100
_IMPORTS = {
    ("llvmlite", "ir"): "from numba.core.cgutils import ir",
    ("llvmlite.binding", "ll"): "from numba.core.codegen import ll",
}
_MAY_IMPORT = ("numba", "numpy", "ctypes", "functools", "itertools", "os", "pathlib", "threading",
               "weakref")  # fmt: skip
_ENTRY = """

@cfunc("void(int64)")
def entry(p):
    macro_kernel(p)
"""


def edges(planned: KernelPlan) -> list[str]:
    """Return the names of the bounds of a part along each parallel dim."""
    first, *others = planned.nest.parts
    return [edge for dim in first for edge in bounds(dim)] if others else []


def edges_of_parts(planned: KernelPlan) -> tuple[tuple[int, ...], ...]:
    """Return the bounds of each part, in the order of `edges`."""
    return tuple(
        tuple(edge for ends in part.values() for edge in ends) for part in planned.nest.parts
    )


def macro_kernel_text(planned: KernelPlan, functions: dict[str, str]) -> str:
    """Return the printed macro-kernel as a function of addresses, its sizes filled in.

    On several threads it takes the address of its arguments; with weights packed ahead, `prepare`
    comes with it. `functions` maps callees to symbols.

    Raises LoweringError if it uses what a standalone module cannot have.
    """
    is_parallel = len(planned.nest.parts) > 1
    given = (*names_of(Addresses), *([BARRIER, *edges(planned)] if is_parallel else []))
    text = _function_text(planned, functions, "macro_kernel", given, is_parallel)
    text += _ENTRY if is_parallel else ""
    if planned.is_ahead:
        text += "\n\n" + _function_text(planned, functions, "prepare", prepared(planned))
    return text


def prepared(planned: KernelPlan) -> tuple[str, ...]:
    """Return the addresses that the pack of constant weights takes."""
    return (*(name.lower() for name in planned.nest.problem.constants), "b_panels")


def _function_text(
    planned: KernelPlan,
    functions: dict[str, str],
    name: str,
    given: tuple[str, ...],
    by_table: bool = False,
) -> str:
    """Return one printed function, of `given` or of the address of a table of them."""
    sizes = planned.sizes | {PARTS: len(planned.nest.parts)}
    body = body_of(planned, name)
    used = parameters_used(planned, body, {*given, *functions, *sizes})
    lines = ["@njit(nogil=True)", f"def {name}({'p' if by_table else ', '.join(given)}):"]
    unpacked = ", ".join(functions) if len(functions) > 1 else f"({next(iter(functions))},)"
    lines.append(f"    {unpacked} = {'ADDRESSES' if planned.is_ahead else 'kernel_addresses()'}")
    if by_table:
        names = _names_in(body)
        lines += [f"    {one} = word(p, {i})" for i, one in enumerate(given) if one in names]
    lines += [f"    {one} = {sizes[one]}" for one in used if one in sizes]
    lines += [f"    {line}" for line in lines_of(body)]
    return "\n".join(map(wrapped, lines)) + "\n"


def body_of(planned: KernelPlan, name: str) -> list[ast.stmt]:
    """Return the statements of a printed function without those for the search."""
    return [kept for node in _printed_functions(planned)[name].body for kept in _filled(node)]


def parameters_used(planned: KernelPlan, body: list[ast.stmt], known: Container[str]) -> list[str]:
    """Return the macro-kernel's parameters that a function uses.

    Raises LoweringError for an unknown one.
    """
    names = _names_in(body)
    used = [name for name in planned.source.parameters if name in names]
    if unknown := [name for name in used if name not in known]:
        raise LoweringError(f"the macro-kernel takes {unknown[0]}, which no exported kernel has")
    return used


def lines_of(body: list[ast.stmt]) -> list[str]:
    """Return the source of statements."""
    return "\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in body).splitlines()


def _printed_functions(planned: KernelPlan) -> dict[str, ast.FunctionDef]:
    source = ast.parse(planned.source.text)
    return {node.name: node for node in source.body if isinstance(node, ast.FunctionDef)}


def _names_in(body: list[ast.stmt]) -> set[str]:
    return {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}


def wrapped(line: str) -> str:
    """Break a long line of source after commas within brackets."""
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


def _filled(node: ast.stmt) -> list[ast.stmt]:
    """Return a statement without parameters, repeats and counters of the search."""
    if isinstance(node, ast.Assign) and _reads(node.value, "p"):
        return []
    if isinstance(node, ast.If) and _reads(node.test, COUNT):
        return []
    if isinstance(node, ast.For | ast.If):
        inner = [kept for one in node.body for kept in _filled(one)]
        is_repeat = isinstance(node, ast.For) and _reads(node.iter, REPEAT)
        if is_repeat or (isinstance(node, ast.If) and _is_same(node.test)):
            return inner
        node.body = inner
        return [node]
    folded = _Folded().visit(node)
    assert isinstance(folded, ast.stmt)
    return [folded]


class _Folded(ast.NodeTransformer):
    """Folds `x - 0`, `0 * x` and `0 == 0`."""

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the folded form of a node."""
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
    """Return whether a test compares a thing with itself for equality."""
    return (
        isinstance(test, ast.Compare)
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and ast.dump(test.left) == ast.dump(test.comparators[0])
    )


def _reads(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


# Definitions


def definitions(planned: KernelPlan) -> tuple[set[str], str]:
    """Return imports and definitions of what the macro-kernel imports from this project."""
    found = _Definitions()
    called = set[str]().union(
        *(_names_in(body_of(planned, name)) for name in _printed_functions(planned))
    )
    if len(planned.nest.parts) > 1:
        found.imports.add("from numba import cfunc")
        found.take("tilewise.kernels.native.language.intrinsics", "word")
        found.take("tilewise.kernels.native.threads.thread_pool", "thread_pool")
    for node in ast.parse(planned.source.text).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tilewise.kernels."):
            for alias in node.names:
                if alias.name in called:
                    found.take(str(node.module), alias.name)
    lines = "\n\n\n".join(found.texts).splitlines()
    return found.imports, "\n".join(map(wrapped, lines))


@dataclass
class _Definitions:
    """Collects definitions by name, each after those that it uses."""

    imports: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    taken: set[tuple[str, str]] = field(default_factory=set)
    trees: dict[str, dict[str, ast.stmt]] = field(default_factory=dict)

    def take(self, module: str, name: str) -> None:
        """Add the definition of `name` in `module`, and all that it needs."""
        if (module, name) in self.taken:
            return
        self.taken.add((module, name))
        node = self._top_level(module)[name]
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._take_import(node, name)
            return
        self.taken |= {(module, other) for other in _names_bound(node)}
        _drop_annotations(node)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and part.id in self._top_level(module):
                self.take(module, part.id)
        self.texts.append(ast.unparse(node))

    def _take_import(self, node: ast.Import | ast.ImportFrom, name: str) -> None:
        alias = next(a for a in node.names if (a.asname or a.name) == name)
        source = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
        if source.startswith("tilewise.kernels."):
            self.take(source, alias.name)
        elif (source, name) in _IMPORTS:
            self.imports.add(_IMPORTS[source, name])
        elif source.split(".")[0] in _MAY_IMPORT:
            one = ast.copy_location(type(node)(**{**vars(node), "names": [alias]}), node)
            self.imports.add(ast.unparse(one))
        else:
            raise LoweringError(f"a kernel's helper imports {source}, which no module of users has")

    def _top_level(self, module: str) -> dict[str, ast.stmt]:
        if module not in self.trees:
            tree = ast.parse(inspect.getsource(importlib.import_module(module)))
            self.trees[module] = {name: node for node in tree.body for name in _names_bound(node)}
        return self.trees[module]


def _names_bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name for alias in node.names}
    if isinstance(node, ast.Assign):
        parts = [part for target in node.targets for part in ast.walk(target)]
        return {part.id for part in parts if isinstance(part, ast.Name)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def _drop_annotations(tree: ast.stmt) -> None:
    """Drop types, which would need imports of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
