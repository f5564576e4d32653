"""Expressions of the language of drivers, and the branches that they decide, into LLVM IR."""

import ast
import functools
from collections.abc import Callable

from llvmlite import ir

from tilewise.kernels.native.ir.vectors import I64, Value, const
from tilewise.kernels.native.language import primitives
from tilewise.kernels.native.language.definitions import language
from tilewise.kernels.native.language.frame import Frame, declared_function

PRIMITIVES: dict[str, Callable[..., Value]] = {
    "read_shared": primitives.emit_read_shared,
    "write_shared": primitives.emit_write_shared,
    "add_shared": primitives.emit_add_shared,
    "pause": primitives.emit_pause,
    "offer_core": primitives.emit_offer_core,
    "word": primitives.emit_word,
    "add_word": primitives.emit_add_word,
    "fill": primitives.emit_fill,
    "wait_for_stores": primitives.emit_wait_for_stores,
    "call_address": lambda builder, to, *values: primitives.emit_call_address(builder, to, values),
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


class Expressions:
    """Emits expressions where the builder of a function's frame is."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self.builder = frame, frame.builder

    def value(self, node: ast.expr) -> Value:
        """The i64 of an expression; a condition is 1 or 0."""
        match node:
            case ast.Constant(value=int(number)):
                return const(int(number))
            case ast.Name():
                return self.frame.read(node)
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
        raise self.frame.refusal(node)

    def either(self, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> Value:
        """`then if test else otherwise`."""
        yes, no, after = self.frame.blocks("then", "else", "after")
        result = self.frame.entry.alloca(I64)
        self.branch_on(test, yes, no)
        for start, part in ((yes, then), (no, otherwise)):
            self.builder.position_at_end(start)
            self.builder.store(self.value(part), result)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(result)

    def branch_on(self, node: ast.expr, yes: ir.Block, no: ir.Block) -> None:
        """Go on at `yes` or `no`; what decides nothing any more is not computed."""
        match node:
            case ast.BoolOp(values=values):
                for value in values[:-1]:
                    following = self.frame.fn.append_basic_block("condition")
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

    def operation(self, node: ast.BinOp) -> Value:
        """Arithmetic."""
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
                return self.division(left, right, gives_rest=isinstance(node.op, ast.Mod))
        raise self.frame.refusal(node)

    def division(self, left: Value, right: Value, gives_rest: bool) -> Value:
        """The quotient rounded down, or the rest that it leaves."""
        b = self.builder
        rest = b.srem(left, right)
        is_off = b.and_(
            b.icmp_signed("!=", rest, const(0)),
            b.icmp_signed("<", b.xor(rest, right), const(0)),
        )
        if gives_rest:
            return b.select(is_off, b.add(rest, right), rest)
        quotient = b.sdiv(left, right)
        return b.select(is_off, b.sub(quotient, const(1)), quotient)

    def call(self, node: ast.Call) -> Value:
        """A primitive, `min` or `max`, or a function of the language."""
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.frame.refusal(node)
        name, values = node.func.id, [self.value(argument) for argument in node.args]
        if name in ("min", "max"):
            return self.extreme("<" if name == "min" else ">", values)
        if name in PRIMITIVES:
            return PRIMITIVES[name](self.builder, *values)
        definition = language().functions.get(name)
        if definition is None:
            raise self.frame.refusal(node)
        return self.builder.call(declared_function(self.frame.module, definition), values)

    def extreme(self, sign: str, values: list[Value]) -> Value:
        """The least or the largest of several."""
        b = self.builder
        return functools.reduce(lambda x, y: b.select(b.icmp_signed(sign, x, y), x, y), values)
