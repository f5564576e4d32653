"""Drivers into LLVM IR without Numba: for a search, which meets a new structure every other trial.

A driver, and every function that it calls, is written in a small language: Python in which
every value is an i64. Numba compiles it, and does so for those who take a kernel along
(`kernels.native.export.module`), but spends most of its 0.3 to 1.2 s on finding out that everything
is an i64. Here that is given, and a tenth of the time remains.
`tests/kernels/native/language/test_to_ir.py` holds what both make equal.

The language: assignments to names, `for` over `range` with a positive step, `while`, `if`,
`continue`, `return` (on every way out of a function that gives something); integers,
`+ - * // % |`, comparisons, `and`, `or`, `not`, a conditional expression, `min` and `max`;
calls of functions of the same language (`kernels.native.language.definitions`) and of the
primitives (`kernels.native.language.primitives`). A name that is written in a loop alone is unknown
behind it, and when its next turn begins.
"""

import ast
import functools
from collections.abc import Callable, Mapping

from llvmlite import ir

from kernels.errors import LoweringError
from kernels.native.ir.builder import Builder
from kernels.native.ir.vectors import I64, VOID, Value, const
from kernels.native.language import primitives
from kernels.native.language.definitions import definitions, gives_a_value, language, times_written

PRIMITIVES: dict[str, Callable[..., Value]] = {
    "read_shared": primitives.emit_read_shared,
    "write_shared": primitives.emit_write_shared,
    "add_shared": primitives.emit_add_shared,
    "pause": primitives.emit_pause,
    "offer_core": primitives.emit_offer_core,
    "word": primitives.emit_word,
    "add_word": primitives.emit_add_word,
    "fill": primitives.emit_fill,
    "call_address": lambda builder, to, *values: primitives.emit_call_address(builder, to, values),
}
_RANGE_ARGUMENTS = 3
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def emit_driver(module: ir.Module, text: str) -> list[ir.Function]:
    """Add the functions of a printed driver; those of the language that it calls are declared.

    Raises:
        LoweringError: something that is not of the language.
    """
    printed, known = definitions(text), language()
    return [
        _Body(module, node, {**known.constants, **printed.constants}).emit()
        for node in printed.functions.values()
    ]


def emit_function(module: ir.Module, name: str) -> ir.Function:
    """Add a function of `LANGUAGE`; others that it calls are declared."""
    known = language()
    return _Body(module, known.functions[name], known.constants).emit()


def symbol(name: str) -> str:
    """What the function called `name` is called in object code."""
    return f"tilewise_{name}"


def _function(module: ir.Module, node: ast.FunctionDef) -> ir.Function:
    """The function of a definition, declared once in a module."""
    declared = module.globals.get(symbol(node.name))
    if declared is not None:
        return declared
    kind = ir.FunctionType(I64 if gives_a_value(node.body) else VOID, [I64] * len(node.args.args))
    fn = ir.Function(module, kind, symbol(node.name))
    fn.attributes.add("nounwind")
    return fn


class _Body:
    """One function: its builder, the values of names written once, and places for the others.

    The places, on the stack, become registers in the first pass that LLVM makes over them.
    """

    def __init__(
        self, module: ir.Module, node: ast.FunctionDef, constants: Mapping[str, int]
    ) -> None:
        self.module, self.node, self.constants = module, node, constants
        self.fn = fn = _function(module, node)
        self.entry = Builder(fn.append_basic_block("entry"))
        self.builder = self.entry.beside(fn.append_basic_block("body"))
        self.times_written = times_written(node.body)
        self.values: dict[str, Value] = {}
        self.places: dict[str, Value] = {}
        self.heads: list[ir.Block] = []

    def emit(self) -> ir.Function:
        """The whole function."""
        for argument, value in zip(self.node.args.args, self.fn.args, strict=True):
            if argument.arg in self.times_written:
                self.times_written[argument.arg] += 1
                self.store(argument.arg, value)
            else:
                self.values[argument.arg] = value
        self.block(self.node.body)
        if not self.builder.block.is_terminated:
            self.builder.ret_void()
        self.entry.branch(self.fn.blocks[1])
        return self.fn

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
                self.store(name, self.value(ast.BinOp(read, node.op, node.value)))
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
                self.builder.ret(self.value(value))
            case ast.Expr(value=ast.Constant(value=str())):
                pass  # a docstring
            case ast.Expr(value=ast.Call() as call):
                self.call(call)
            case _:
                raise self.refusal(node)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """To a name, or to several at once: all are computed before the first is written."""
        if isinstance(target, ast.Name):
            self.store(target.id, self.value(value))
            return
        if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
            raise self.refusal(target)
        values = [self.value(part) for part in value.elts]
        for name, each in zip(target.elts, values, strict=True):
            if not isinstance(name, ast.Name):
                raise self.refusal(name)
            self.store(name.id, each)

    def store(self, name: str, value: Value) -> None:
        """Give a local name a value."""
        if self.times_written[name] == 1:
            self.values[name] = value
            return
        if name not in self.places:
            self.places[name] = self.entry.alloca(I64)
        self.builder.store(value, self.places[name])

    def loop(self, name: str, node: ast.For) -> None:
        """`for name in range(...)`; the body may assign to `name`, as in Python."""
        if not (isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range"):
            raise self.refusal(node)
        given = [self.value(argument) for argument in node.iter.args]
        first, end, step = [
            *([const(0)] if len(given) == 1 else []),
            *given,
            *([const(1)] if len(given) < _RANGE_ARGUMENTS else []),
        ]
        counter = f"{name} of line {node.lineno}"
        self.store(counter, first)
        test, body, following, after = (
            self.fn.append_basic_block(part) for part in ("test", "body", "next", "after")
        )
        self.builder.branch(test)
        self.builder.position_at_end(test)
        now = self.builder.load(self.places[counter])
        self.builder.cbranch(self.builder.icmp_signed("<", now, end), body, after)
        self.builder.position_at_end(body)
        known = dict(self.values)
        self.store(name, now)
        self.inside(following, node.body)
        self.values = known
        self.builder.position_at_end(following)
        now = self.builder.load(self.places[counter])
        self.store(counter, self.builder.add(now, step))
        self.builder.branch(test)
        self.builder.position_at_end(after)

    def repeat(self, node: ast.While) -> None:
        """`while condition`."""
        test, body, after = (self.fn.append_basic_block(p) for p in ("test", "body", "after"))
        self.builder.branch(test)
        self.builder.position_at_end(test)
        self.branch_on(node.test, body, after)
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
        yes, no, after = (self.fn.append_basic_block(p) for p in ("then", "else", "after"))
        self.branch_on(node.test, yes, no)
        for start, body in ((yes, node.body), (no, node.orelse)):
            self.builder.position_at_end(start)
            self.block(body)
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
        self.builder.position_at_end(after)

    def branch_on(self, node: ast.expr, yes: ir.Block, no: ir.Block) -> None:
        """Go on at `yes` or `no`; what decides nothing any more is not computed."""
        match node:
            case ast.BoolOp(values=values):
                for value in values[:-1]:
                    following = self.fn.append_basic_block("condition")
                    if isinstance(node.op, ast.And):
                        self.branch_on(value, following, no)
                    else:
                        self.branch_on(value, yes, following)
                    self.builder.position_at_end(following)
                self.branch_on(values[-1], yes, no)
            case ast.UnaryOp(op=ast.Not()):
                self.branch_on(node.operand, no, yes)
            case ast.Compare(ops=[operator], comparators=[right]):
                left = self.value(node.left)
                sign = _COMPARISONS[type(operator)]
                self.builder.cbranch(
                    self.builder.icmp_signed(sign, left, self.value(right)), yes, no
                )
            case _:
                is_set = self.builder.icmp_signed("!=", self.value(node), const(0))
                self.builder.cbranch(is_set, yes, no)

    def value(self, node: ast.expr) -> Value:
        """The i64 of an expression; a condition is 1 or 0."""
        match node:
            case ast.Constant(value=int(number)):
                return const(int(number))
            case ast.Name(id=name) if name in self.values:
                return self.values[name]
            case ast.Name(id=name) if name in self.places:
                return self.builder.load(self.places[name])
            case ast.Name(id=name) if name in self.constants:
                return const(self.constants[name])
            case ast.UnaryOp(op=ast.USub()):
                return self.builder.sub(const(0), self.value(node.operand))
            case ast.BinOp():
                return self.operation(node)
            case ast.IfExp():
                return self.either(node.test, node.body, node.orelse)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self.either(node, ast.Constant(1), ast.Constant(0))
            case ast.Call():
                return self.call(node)
        raise self.refusal(node)

    def either(self, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> Value:
        """`then if test else otherwise`."""
        yes, no, after = (self.fn.append_basic_block(p) for p in ("then", "else", "after"))
        result = self.entry.alloca(I64)
        self.branch_on(test, yes, no)
        for start, part in ((yes, then), (no, otherwise)):
            self.builder.position_at_end(start)
            self.builder.store(self.value(part), result)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(result)

    def operation(self, node: ast.BinOp) -> Value:
        """Arithmetic; quotients are rounded down, as Python's are."""
        b, left, right = self.builder, self.value(node.left), self.value(node.right)
        match node.op:
            case ast.Add():
                return b.add(left, right)
            case ast.Sub():
                return b.sub(left, right)
            case ast.Mult():
                return b.mul(left, right)
            case ast.BitOr():
                return b.or_(left, right)
            case ast.FloorDiv() | ast.Mod():
                rest = b.srem(left, right)
                is_off = b.and_(
                    b.icmp_signed("!=", rest, const(0)),
                    b.icmp_signed("<", b.xor(rest, right), const(0)),
                )
                if isinstance(node.op, ast.Mod):
                    return b.select(is_off, b.add(rest, right), rest)
                quotient = b.sdiv(left, right)
                return b.select(is_off, b.sub(quotient, const(1)), quotient)
        raise self.refusal(node)

    def call(self, node: ast.Call) -> Value:
        """A primitive, `min` or `max`, or a function of the language."""
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.refusal(node)
        name, values = node.func.id, [self.value(argument) for argument in node.args]
        if name in ("min", "max"):
            sign = "<" if name == "min" else ">"
            return functools.reduce(
                lambda x, y: self.builder.select(self.builder.icmp_signed(sign, x, y), x, y), values
            )
        if name in PRIMITIVES:
            return PRIMITIVES[name](self.builder, *values)
        if name not in language().functions:
            raise self.refusal(node)
        return self.builder.call(_function(self.module, language().functions[name]), values)

    def refusal(self, node: ast.AST) -> LoweringError:
        """What to raise for a thing that the language does not have."""
        return LoweringError(
            f"{self.node.name}: {ast.unparse(node)} is not of the language of drivers"
        )
