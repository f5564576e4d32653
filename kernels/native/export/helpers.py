"""The definitions that an exported driver needs, moved out of this project.

Source is moved as syntax trees, so that it is the project's own code that users get:
annotations go, imports of this project become the definitions that they name, and
llvmlite is reached through numba, which with numpy is all that the module may import;
one that runs on several threads needs the standard library for them.
"""

import ast
import importlib
import inspect
from dataclasses import dataclass, field

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.export.driver_source import filled, functions_of, wrapped
from tilewise.kernels.native.plan import Plan

_IMPORTS = {
    ("llvmlite", "ir"): "from numba.core.cgutils import ir",
    ("llvmlite.binding", "ll"): "from numba.core.codegen import ll",
}
_MAY_IMPORT = ("numba", "numpy", "ctypes", "functools", "itertools", "os", "pathlib", "threading")


def helpers_text(planned: Plan) -> tuple[list[str], str]:
    """The imports, and the definitions, of what the driver imports from this project."""
    found = _Definitions()
    source = ast.parse(planned.source.text)
    called: set[str] = set()
    for function in functions_of(planned).values():
        body = [kept for node in function.body for kept in filled(node)]
        called |= {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name)}
    if len(planned.nest.parts) > 1:
        found.imports.add("from numba import cfunc")
        found.take("tilewise.kernels.native.language.words", "word")
        found.take("tilewise.kernels.native.threads.thread_pool", "thread_pool")
    for node in source.body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tilewise.kernels."):
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
    """Functions without types, which would need imports of their own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
