"""A function of the language of drivers while it is emitted: its builders and its names."""

import ast
from collections.abc import Mapping

from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import I64, VOID, Value, const
from tilewise.kernels.native.language.definitions import gives_a_value, times_written

_PREFIX = "tilewise_"


def symbol(name: str) -> str:
    """What the function called `name` is called in object code."""
    return f"{_PREFIX}{name}"


def called_name(found: str) -> str:
    """The function that object code calls `found`; empty for one of the system."""
    return found.removeprefix(_PREFIX) if found.startswith(_PREFIX) else ""


def declared_function(module: ir.Module, node: ast.FunctionDef) -> ir.Function:
    """The function of a definition, declared once in a module."""
    declared = module.globals.get(symbol(node.name))
    if declared is not None:
        return declared
    kind = ir.FunctionType(I64 if gives_a_value(node.body) else VOID, [I64] * len(node.args.args))
    fn = ir.Function(module, kind, symbol(node.name))
    fn.attributes.add("nounwind")
    return fn


class Frame:
    """One function: its builder, the values of names written once, and places for the others.

    The places, on the stack, become registers in the first pass that LLVM makes over them.

    Args:
        module: that it is a part of.
        node: its definition.
        constants: integers of the source that it is from, by name.
        known: values of names that whoever emits it has for it; nothing may write to those.

    Attributes:
        entry: a builder in the first block, where places are made.
        builder: the one that writes the code.
        values: of names that are written in one place.
        places: of the other names.
    """

    def __init__(
        self,
        module: ir.Module,
        node: ast.FunctionDef,
        constants: Mapping[str, int],
        known: Mapping[str, Value],
    ) -> None:
        self.module = module
        self.fn = fn = declared_function(module, node)
        self.entry = Builder(fn.append_basic_block("entry"))
        self.builder = self.entry.beside(fn.append_basic_block("body"))
        self.values = dict(known)
        self.places: dict[str, Value] = {}
        self._name = node.name
        self._constants = constants
        self._times_written = times_written(node.body)
        self._take(node.args.args)

    def _take(self, arguments: list[ast.arg]) -> None:
        for argument, value in zip(arguments, self.fn.args, strict=True):
            if argument.arg in self._times_written:
                self._times_written[argument.arg] += 1
                self.store(argument.arg, value)
            else:
                self.values[argument.arg] = value

    def store(self, name: str, value: Value) -> None:
        """Give a local name a value."""
        if self._times_written[name] == 1:
            self.values[name] = value
            return
        if name not in self.places:
            self.places[name] = self.entry.alloca(I64)
        self.builder.store(value, self.places[name])

    def read(self, node: ast.Name) -> Value:
        """The value of a name."""
        name = node.id
        if name in self.values:
            return self.values[name]
        if name in self.places:
            return self.builder.load(self.places[name])
        if name in self._constants:
            return const(self._constants[name])
        raise self.refusal(node)

    def blocks(self, *names: str) -> list[ir.Block]:
        """New blocks."""
        return [self.fn.append_basic_block(name) for name in names]

    def close(self) -> None:
        """Return where nothing has, and go from the entry to the code."""
        if not self.builder.block.is_terminated:
            self.builder.ret_void()
        self.entry.branch(self.fn.blocks[1])

    def refusal(self, node: ast.AST) -> LoweringError:
        """What to raise for a thing that the language does not have."""
        return LoweringError(f"{self._name}: {ast.unparse(node)} is not of the language of drivers")
