"""Compiles macro-kernels to LLVM IR without Numba, for a search, which meets many structures.

A macro-kernel, and every function that it calls, is written in a small language: Python in which
every value is an i64. Numba compiles it for those who export a kernel
(`tilewise.kernels.native.export.module`), but spends most of its 0.3 to 1.2 s on finding out that
everything is an i64. Here that is given, and it takes a tenth of the time.
`tests/kernels/native/language/test_compiler.py` compares the results of both.

The language: assignments to names, `for` over `range` with a positive step, `while`, `if`,
`continue`, `return` (on every way out of a function that gives something); integers,
`+ - * // % |`, comparisons, `and`, `or`, `not`, a conditional expression, `min` and `max`; calls of
functions of the language (`functions.py`) and of primitives
(`tilewise.kernels.native.language.primitives`). A name that is assigned to in a loop alone has no
value after it, nor when its next iteration begins.
"""

import ast
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import I64, VOID, Value, const
from tilewise.kernels.native.language.primitives import CONSTANTS, PRIMITIVES

_PREFIX = "tilewise_"
_FUNCTIONS = Path(__file__).with_name("functions.py")
_OPERATIONS: dict[type[ast.operator], Callable[[Builder, Value, Value], Value]] = {
    ast.Add: Builder.add, ast.Sub: Builder.sub, ast.Mult: Builder.mul, ast.BitOr: Builder.or_,
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


@functools.cache
def language() -> Mapping[str, ast.FunctionDef]:
    """Return the functions that macro-kernels call; read, because importing them loads Numba."""
    return definitions(_FUNCTIONS.read_text())


def definitions(text: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a module, by name."""
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def symbol(name: str) -> str:
    """Return the name of a function in object code."""
    return f"{_PREFIX}{name}"


def called_name(found: str) -> str:
    """Return the function that object code calls `found`; empty for one of the system."""
    return found.removeprefix(_PREFIX) if found.startswith(_PREFIX) else ""


def emit_macro_kernel(
    module: ir.Module, text: str, known: Mapping[str, Value] | None = None
) -> list[ir.Function]:
    """Add the functions of a source; those of the language that they call are declared.

    Args:
        module: to which they are added.
        text: the source.
        known: values of names that the source reads and does not assign to.

    Raises:
        LoweringError: something that is not of the language.
    """
    return [_emit(module, node, known or {}) for node in definitions(text).values()]


def emit_function(module: ir.Module, name: str) -> ir.Function:
    """Add a function of the language; others that it calls are declared."""
    return _emit(module, language()[name], {})


def _emit(module: ir.Module, node: ast.FunctionDef, known: Mapping[str, Value]) -> ir.Function:
    function = _Function(module, node, known)
    function.block(node.body)
    function.close()
    return function.fn


def _declared(module: ir.Module, node: ast.FunctionDef) -> ir.Function:
    """Return the function of a definition, declared once in a module."""
    declared = module.globals.get(symbol(node.name))
    if declared is not None:
        return declared
    gives = any(isinstance(part, ast.Return) and part.value for part in ast.walk(node))
    kind = ir.FunctionType(I64 if gives else VOID, [I64] * len(node.args.args))
    fn = ir.Function(module, kind, symbol(node.name))
    fn.attributes.add("nounwind")
    return fn


def _assignments(statements: Iterable[ast.stmt], times: int = 1) -> Counter[str]:
    """Count the assignments to each name; one under a condition counts as two.

    A name with one assignment has its value wherever it is read later in the same block, or in one
    inside.
    """
    found: Counter[str] = Counter()
    for node in statements:
        names: list[str] = []
        match node:
            case ast.Assign(targets=targets):
                names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            case ast.AugAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.For(target=ast.Name(id=name)):
                names = [name]
                found += _assignments(node.body, times)
            case ast.If() | ast.While():
                found += _assignments([*node.body, *node.orelse], 2)
        for name in names:
            found[name] += times
    return found


class _Function:
    """Emits one function.

    A name with one assignment is its value, known in the loop that it is in; other names have
    places on the stack, which LLVM's first pass makes registers.
    """

    def __init__(
        self, module: ir.Module, node: ast.FunctionDef, known: Mapping[str, Value]
    ) -> None:
        self.module, self.name = module, node.name
        self.fn = fn = _declared(module, node)
        self.entry = Builder(fn.append_basic_block("entry"))  # where places are made
        self.builder = self.entry.sibling(fn.append_basic_block("body"))
        self.values, self.places = dict(known), dict[str, Value]()
        self.heads: list[ir.Block] = []  # where the loops around go on
        arguments = [argument.arg for argument in node.args.args]
        self.assignments = _assignments(node.body) + Counter(arguments)
        for name, value in zip(arguments, fn.args, strict=True):
            self.store(name, value)

    def close(self) -> None:
        """Return where nothing has, and go from the entry to the code."""
        if not self.builder.block.is_terminated:
            self.builder.ret_void()
        self.entry.branch(self.fn.blocks[1])

    def store(self, name: str, value: Value) -> None:
        """Assign to a local name."""
        if self.assignments[name] == 1:
            self.values[name] = value
            return
        if name not in self.places:
            self.places[name] = self.entry.alloca(I64)
        self.builder.store(value, self.places[name])

    def read(self, node: ast.Name) -> Value:
        """Return the value of a name."""
        if node.id in self.values:
            return self.values[node.id]
        if node.id in self.places:
            return self.builder.load(self.places[node.id])
        if node.id in CONSTANTS:
            return const(CONSTANTS[node.id])
        raise self.refusal(node)

    def blocks(self, *names: str) -> list[ir.Block]:
        """Add blocks."""
        return [self.fn.append_basic_block(name) for name in names]

    def refusal(self, node: ast.AST) -> LoweringError:
        """Return what to raise for a thing that the language does not have."""
        return LoweringError(
            f"{self.name}: {ast.unparse(node)} is not of the language of macro-kernels"
        )

    # Statements ------------------------------------------------------------------------------

    def block(self, statements: list[ast.stmt]) -> None:
        """Emit statements as far as they can be reached."""
        for statement in statements:
            if self.builder.block.is_terminated:
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        """Emit one statement."""
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=parts)):
                self.assign(names, [self.value(part) for part in parts])
            case ast.Assign(targets=[target]):
                self.assign([target], [self.value(node.value)])
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

    def assign(self, names: list[ast.expr], values: list[Value]) -> None:
        """Assign to one name or several; all values are computed already."""
        for name, value in zip(names, values, strict=True):
            if not isinstance(name, ast.Name):
                raise self.refusal(name)
            self.store(name.id, value)

    def loop(self, name: str, node: ast.For) -> None:
        """Emit `for name in range(...)`; the body may assign to `name`, as in Python."""
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=arguments):
                given = [self.value(argument) for argument in arguments]
            case _:
                raise self.refusal(node)
        first = given[0] if len(given) > 1 else const(0)
        end = given[min(len(given) - 1, 1)]
        step = given[2] if len(given) > 2 else const(1)
        counter = f"{name} of line {node.lineno}"
        self.store(counter, first)
        test, body, following, after = self.blocks("test", "body", "next", "after")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        now = self.builder.load(self.places[counter])
        self.builder.cbranch(self.builder.icmp_signed("<", now, end), body, after)
        self.builder.position_at_end(body)
        outside = dict(self.values)
        self.store(name, now)
        self.inside(following, node.body)
        self.values = outside
        self.builder.position_at_end(following)
        now = self.builder.load(self.places[counter])
        self.store(counter, self.builder.add(now, step))
        self.builder.branch(test)
        self.builder.position_at_end(after)

    def repeat(self, node: ast.While) -> None:
        """Emit `while condition`."""
        test, body, after = self.blocks("test", "body", "after")
        self.builder.branch(test)
        self.builder.position_at_end(test)
        self.branch_on(node.test, body, after)
        self.builder.position_at_end(body)
        self.inside(test, node.body)
        self.builder.position_at_end(after)

    def inside(self, head: ir.Block, body: list[ast.stmt]) -> None:
        """Emit the body of a loop, which goes on at `head`."""
        self.heads.append(head)
        self.block(body)
        self.heads.pop()
        if not self.builder.block.is_terminated:
            self.builder.branch(head)

    def choose(self, node: ast.If) -> None:
        """Emit `if`, with or without an `else`."""
        yes, no, after = self.blocks("then", "else", "after")
        self.branch_on(node.test, yes, no)
        for start, body in ((yes, node.body), (no, node.orelse)):
            self.builder.position_at_end(start)
            self.block(body)
            if not self.builder.block.is_terminated:
                self.builder.branch(after)
        self.builder.position_at_end(after)

    # Expressions -----------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Return the i64 of an expression; a condition is 1 or 0."""
        match node:
            case ast.Constant(value=int(number)):
                return const(int(number))
            case ast.Name():
                return self.read(node)
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
        """Return `then if test else otherwise`."""
        yes, no, after = self.blocks("then", "else", "after")
        result = self.entry.alloca(I64)
        self.branch_on(test, yes, no)
        for start, part in ((yes, then), (no, otherwise)):
            self.builder.position_at_end(start)
            self.builder.store(self.value(part), result)
            self.builder.branch(after)
        self.builder.position_at_end(after)
        return self.builder.load(result)

    def branch_on(self, node: ast.expr, yes: ir.Block, no: ir.Block) -> None:
        """Go on at `yes` or `no`; an operand that decides nothing any more is not computed."""
        match node:
            case ast.BoolOp(values=[*values, last]):
                for value in values:
                    (following,) = self.blocks("condition")
                    if isinstance(node.op, ast.And):
                        self.branch_on(value, following, no)
                    else:
                        self.branch_on(value, yes, following)
                    self.builder.position_at_end(following)
                self.branch_on(last, yes, no)
            case ast.UnaryOp(op=ast.Not()):
                self.branch_on(node.operand, no, yes)
            case ast.Compare(ops=[operator], comparators=[right]):
                sign, left = _COMPARISONS[type(operator)], self.value(node.left)
                is_so = self.builder.icmp_signed(sign, left, self.value(right))
                self.builder.cbranch(is_so, yes, no)
            case _:
                is_set = self.builder.icmp_signed("!=", self.value(node), const(0))
                self.builder.cbranch(is_set, yes, no)

    def operation(self, node: ast.BinOp) -> Value:
        """Return a sum, a product, ..., or a quotient rounded down, or the rest that it leaves."""
        b, left, right = self.builder, self.value(node.left), self.value(node.right)
        if type(node.op) in _OPERATIONS:
            return _OPERATIONS[type(node.op)](b, left, right)
        if not isinstance(node.op, ast.FloorDiv | ast.Mod):
            raise self.refusal(node)
        rest = b.srem(left, right)
        is_off = b.and_(
            b.icmp_signed("!=", rest, const(0)), b.icmp_signed("<", b.xor(rest, right), const(0))
        )
        if isinstance(node.op, ast.Mod):
            return b.select(is_off, b.add(rest, right), rest)
        quotient = b.sdiv(left, right)
        return b.select(is_off, b.sub(quotient, const(1)), quotient)

    def call(self, node: ast.Call) -> Value:
        """Call a primitive, `min` or `max`, or a function of the language."""
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.refusal(node)
        name, values = node.func.id, [self.value(argument) for argument in node.args]
        if name in ("min", "max"):
            b, sign = self.builder, "<" if name == "min" else ">"
            return functools.reduce(lambda x, y: b.select(b.icmp_signed(sign, x, y), x, y), values)
        if name in PRIMITIVES:
            return PRIMITIVES[name](self.builder, *values)
        if name not in language():
            raise self.refusal(node)
        return self.builder.call(_declared(self.module, language()[name]), values)
