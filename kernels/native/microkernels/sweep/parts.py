"""The sum of the parts of a divided reduction.

    C[rows, cols] = relu?( (C | 0) + bias? + sum over parts, in their order, of part[rows, cols] )

It is one pass over sums that the caches have: a few lines for each part.
"""

from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import Loop, Transform, branch, when
from tilewise.kernels.native.ir.vectors import ELEMENTS, Value, Vectors, const, internal_function
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    LOAD_C,
    PARTS_ARGUMENTS,
    RELU,
    PartsArguments,
    ceiling_of,
)


def emit_add_parts(
    module: ir.Module, accumulator: str, lanes: int, fma: bool, epilogue: int
) -> ir.Function:
    """Add the function.

    Args:
        module: to which it is added.
        accumulator: the type of C and of the parts.
        lanes: elements of a vector.
        fma: whether the target fuses multiply and add.
        epilogue: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`.
    """
    fn = internal_function(module, "tilewise_kernel_add_parts", len(PARTS_ARGUMENTS))
    builder = Builder(fn.append_basic_block("entry"))
    vectors = Vectors(builder, ELEMENTS[accumulator], lanes, fma)
    rows = Loop(builder, (), "rows")
    row = _Row(builder, vectors, epilogue, PartsArguments(*fn.args), rows.index)
    row.emit()
    rows.close((), row.arg.rows, 1)
    builder.ret_void()
    return fn


class _Row:
    """One row: whole vectors of its columns, and what is left of one."""

    def __init__(
        self, b: Builder, v: Vectors, epilogue: int, arg: PartsArguments[Value], row: Value
    ) -> None:
        self.b, self.v, self.epilogue, self.arg = b, v, epilogue, arg
        self.c = v.offset(arg.c, b.mul(row, arg.c_row))
        self.first = v.offset(arg.parts, b.mul(row, arg.cols))
        self.part = b.mul(arg.rows, arg.cols)

    def emit(self) -> None:
        """All columns."""
        b, lanes = self.b, self.v.lanes
        rest = b.srem(self.arg.cols, const(lanes))
        whole = b.sub(self.arg.cols, rest)

        def vectors(nothing: list[Value]) -> list[Value]:
            loop = Loop(b, (), "columns")
            self._vector(loop.index, None)
            loop.close((), whole, lanes)
            return nothing

        def last(nothing: list[Value]) -> list[Value]:
            self._vector(whole, self.v.first_lanes(rest, 0))
            return nothing

        branch(b, b.icmp_signed(">", whole, const(0)), vectors, [])
        branch(b, b.icmp_signed(">", rest, const(0)), last, [])

    def _vector(self, col: Value, mask: Value | None) -> None:
        v, arg = self.v, self.arg
        to, first = v.offset(self.c, col), v.offset(self.first, col)

        def biased(sums: list[Value]) -> list[Value]:
            return [v.add(sums[0], v.load(v.offset(arg.bias, col), mask))]

        sums = self._when(LOAD_C, lambda _: [v.load(to, mask)], [v.zero])
        parts = Loop(self.b, self._when(ADD_BIAS, biased, sums), "parts")
        at = v.offset(first, self.b.mul(parts.index, self.part))
        total = v.add(parts.carried[0], v.load(at, mask))
        done = parts.close([total], arg.count, 1)
        ceiling = ceiling_of(self.epilogue)
        (result,) = self._when(RELU, lambda xs: [v.relu(xs[0], ceiling)], done)
        v.store(result, to, mask)

    def _when(self, flag: int, then: Transform, values: list[Value]) -> list[Value]:
        return when(self.b, self.arg.flags, flag, self.epilogue | LOAD_C, then, values)
