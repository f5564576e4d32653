"""Drivers into LLVM IR without Numba: for a search, which meets a new structure every other trial.

A driver, and every function that it calls, is written in a small language: Python in which
every value is an i64. Numba compiles it, and does so for those who take a kernel along
(`tilewise.kernels.native.export.module`), but spends most of its 0.3 to 1.2 s on finding out that
everything is an i64. Here that is given, and a tenth of the time remains.
`tests/kernels/native/language/test_to_ir.py` holds what both make equal.

The language: assignments to names, `for` over `range` with a positive step, `while`, `if`,
`continue`, `return` (on every way out of a function that gives something); integers,
`+ - * // % |`, comparisons, `and`, `or`, `not`, a conditional expression, `min` and `max`;
calls of functions of the same language (`tilewise.kernels.native.language.definitions`) and of the
primitives (`tilewise.kernels.native.language.primitives`). A name that is written in a loop alone
is unknown behind it, and when its next turn begins.
"""

import ast
from collections.abc import Mapping

from llvmlite import ir

from tilewise.kernels.native.ir.vectors import Value, const
from tilewise.kernels.native.language.definitions import definitions, language
from tilewise.kernels.native.language.expressions import Expressions
from tilewise.kernels.native.language.frame import Frame

_RANGE_ARGUMENTS = 3


def emit_driver(
    module: ir.Module, text: str, known: Mapping[str, Value] | None = None
) -> list[ir.Function]:
    """Add the functions of a printed driver; those of the language that it calls are declared.

    Args:
        module: to which they are added.
        text: the driver.
        known: values of names that the text uses and does not give a value to.

    Raises:
        LoweringError: something that is not of the language.
    """
    printed, called = definitions(text), language()
    constants = {**called.constants, **printed.constants}
    return [_emit(module, node, constants, known or {}) for node in printed.functions.values()]


def emit_function(module: ir.Module, name: str) -> ir.Function:
    """Add a function of `LANGUAGE`; others that it calls are declared."""
    known = language()
    return _emit(module, known.functions[name], known.constants, {})


def _emit(
    module: ir.Module,
    node: ast.FunctionDef,
    constants: Mapping[str, int],
    known: Mapping[str, Value],
) -> ir.Function:
    frame = Frame(module, node, constants, known)
    _Statements(frame).block(node.body)
    frame.close()
    return frame.fn


class _Statements:
    """Emits statements of one function; holds where the loops around them go on."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.builder = frame, frame.builder
        self.expressions = Expressions(frame)
        self.heads: list[ir.Block] = []

    def block(self, statements: list[ast.stmt]) -> None:
        """Statements in their order, as far as they can be reached."""
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """One statement."""
        match node:
            case ast.Assign(targets=[target]):
                self.assign(target, node.value)
            case ast.AugAssign(target=ast.Name(id=name)):
                read = ast.Name(name, ast.Load())
                self.frame.store(name, self.expressions.value(ast.BinOp(read, node.op, node.value)))
            case ast.For(target=ast.Name(id=name)) if not node.orelse:
                self.loop(name, node)
            case ast.While() if not node.orelse:
                self.repeat(node)
            case ast.If():
                self.choose(node)
            case ast.Continue():
                self.builder.branch(self.heads[-1])
            case ast.Return(value=None):
                self.builder.ret_void()
            case ast.Return(value=value) if value is not None:
                self.builder.ret(self.expressions.value(value))
            case ast.Expr(value=ast.Constant(value=str())):
                pass  # a docstring
            case ast.Expr(value=ast.Call() as call):
                self.expressions.call(call)
            case _:
                raise self.frame.refusal(node)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """To a name, or to several at once: all are computed before the first is written."""
        if isinstance(target, ast.Name):
            self.frame.store(target.id, self.expressions.value(value))
            return
        if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            raise self.frame.refusal(target)
        values = [self.expressions.value(part) for part in value.elts]
        for name, each in zip(target.elts, values, strict=True):
            if not isinstance(name, ast.Name):
                raise self.frame.refusal(name)
            self.frame.store(name.id, each)

    def loop(self, name: str, node: ast.For) -> None:
        """`for name in range(...)`; the body may assign to `name`, as in Python."""
        if not (isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"):
            raise self.frame.refusal(node)
        given = [self.expressions.value(argument) for argument in node.iter.args]
        first, end, step = [
            *([const(0)] if len(given) == 1 else []),
            *given,
            *([const(1)] if len(given) < _RANGE_ARGUMENTS else []),
        ]
        counter = f"{name} of line {node.lineno}"
        self.frame.store(counter, first)
        test, body, following, after = self.frame.blocks("test", "body", "next", "after")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        now = self.builder.load(self.frame.places[counter])
        self.builder.cbranch(self.builder.icmp_signed("<", now, end), body, after)
        self.builder.position_at_end(body)
        known = dict(self.frame.values)
        self.frame.store(name, now)
        self.inside(following, node.body)
        self.frame.values = known
        self.builder.position_at_end(following)
        now = self.builder.load(self.frame.places[counter])
        self.frame.store(counter, self.builder.add(now, step))
        self.builder.branch(test)
        self.builder.position_at_end(after)

    def repeat(self, node: ast.While) -> None:
        """`while condition`."""
        test, body, after = self.frame.blocks("test", "body", "after")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        self.expressions.branch_on(node.test, body, after)
        self.builder.position_at_end(body)
        self.inside(test, node.body)
        self.builder.position_at_end(after)

    def inside(self, head: ir.Block, body: list[ast.stmt]) -> None:
        """The body of a loop, which goes on at `head`."""
        self.heads.append(head)
        self.block(body)
        self.heads.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(head)

    def choose(self, node: ast.If) -> None:
        """`if`, with or without an `else`."""
        yes, no, after = self.frame.blocks("then", "else", "after")
        self.expressions.branch_on(node.test, yes, no)
        for start, body in ((yes, node.body), (no, node.orelse)):
            self.builder.position_at_end(start)
            self.block(body)
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
        self.builder.position_at_end(after)
