"""Pieces of a module that stands alone: the driver with its sizes filled in, the helpers
that it calls, and the micro-kernel as LLVM IR text.

Source is moved as syntax trees, so that it is the project's own code that users get:
annotations go, imports of this project become the definitions that they name, and
llvmlite is reached through numba, which with numpy is all that the module may import;
one that runs on several threads needs the standard library for them.
"""

import ast
import hashlib
import importlib
import inspect
import re
from dataclasses import dataclass, field

from llvmlite import ir

from kernels.errors import LoweringError
from kernels.native.jit.functions import KernelSpec, emit_all
from kernels.native.microkernels.use import ANYHOW, Use
from kernels.native.plan import Plan

ADDRESSES = ("a", "b", "c", "bias", "a_panels", "b_panels")
_IMPORTS = {
    ("llvmlite", "ir"): "from numba.core.cgutils import ir",
    ("llvmlite.binding", "ll"): "from numba.core.codegen import ll",
}
_MAY_IMPORT = ("numba", "numpy", "ctypes", "functools", "itertools", "os", "pathlib", "threading")
WIDTH = 100


@dataclass(frozen=True)
class KernelText:
    """The functions of a micro-kernel as text.

    Attributes:
        text: LLVM IR.
        functions: the name of each function in `text`, by its name in the driver.
    """

    text: str
    functions: dict[str, str]


def kernel_text(spec: KernelSpec, use: Use = ANYHOW) -> KernelText:
    """The IR of `spec` for a use, with names that no other kernel in a process has."""
    module = ir.Module("kernel")
    functions = emit_all(module, spec, use)
    for function in functions:
        function.linkage = "external"  # other modules have to find it when they are linked
    text = _plain("\n".join(str(value) for value in module.globals.values()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    names = {}
    for function in functions:
        short = function.name.removeprefix("tilewise_").removeprefix("kernel_")
        names[short] = f"{function.name}_{digest}"
        text = re.sub(rf"@{function.name}\b", f"@{names[short]}", text)
    return KernelText(text, names)


def _plain(text: str) -> str:
    """Llvmlite's spelling without needless quotes, typed pointers and repeated zeros."""
    text = re.sub(r'([%@])"([-\w$.]+)"', r"\1\2", text)
    text = re.sub(r'^"?([-\w$.]+)"?:$', r"\1:", text, flags=re.MULTILINE)
    text = re.sub(r"(<\d+ x \w+>|\b\w+)\*", "ptr", text)
    text = re.sub(r"<(\w+ (?:0|0\.0|0x0+))(, \1)*>", "zeroinitializer", text)
    text = re.sub(r"<(\w+ undef)(, \1)*>", "undef", text).replace("define external ", "define ")
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


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
    is_ahead = "prepare" in _functions(planned)
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
    bounds = [f"{dim}_{edge}" for dim in parts[0] for edge in ("first", "end")]
    return (*ADDRESSES, *(["barrier", *bounds] if len(parts) > 1 else []))


def _functions(planned: Plan) -> dict[str, ast.FunctionDef]:
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
    body = [kept for node in _functions(planned)[name].body for kept in _filled(node)]
    used = {node.id for part in body for node in ast.walk(part) if isinstance(node, ast.Name)}
    named = [name for name in planned.source.parameters if name in used]
    sizes = planned.sizes | {"parts": len(planned.nest.parts)}
    unknown = [name for name in named if name not in {*given, *functions, *sizes}]
    if unknown:
        raise LoweringError(f"the driver takes {unknown[0]}, which no exported kernel has")
    lines = ["@njit(nogil=True)", f"def {name}({'p' if by_table else ', '.join(given)}):"]
    lines.append(f"    {', '.join(functions)} = {where}")
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


def _filled(node: ast.stmt) -> list[ast.stmt]:
    """A statement without what only the search needs: parameters, repeats and counters."""
    if isinstance(node, ast.Assign) and _reads(node.value, "p"):
        return []
    if isinstance(node, ast.For) and _reads(node.iter, "repeat"):
        return [kept for inner in node.body for kept in _filled(inner)]
    if isinstance(node, ast.If) and _reads(node.test, "count"):
        return []
    if isinstance(node, ast.If) and _is_same(node.test):
        return [kept for inner in node.body for kept in _filled(inner)]
    if isinstance(node, ast.For | ast.If):
        node.body = [kept for inner in node.body for kept in _filled(inner)]
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


def helpers_text(planned: Plan) -> tuple[list[str], str]:
    """The imports, and the definitions, of what the driver imports from this project."""
    found = _Definitions()
    source = ast.parse(planned.source.text)
    called: set[str] = set()
    for function in _functions(planned).values():
        body = [kept for node in function.body for kept in _filled(node)]
        called |= {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name)}
    if len(planned.nest.parts) > 1:
        found.imports.add("from numba import cfunc")
        found.take("kernels.native.language.packs", "word")
        found.take("kernels.native.threads.crew", "crew")
    for node in source.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("kernels."):
            for alias in node.names:
                if alias.name in called:
                    found.take(str(node.module), alias.name)
    lines = "\n\n\n".join(found.texts).splitlines()
    return sorted(found.imports), "\n".join(map(wrapped, lines))


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
        if source.startswith("kernels."):
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
    return set()


def _drop_annotations(tree: ast.stmt) -> None:
    """Functions without types, which would need imports of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
