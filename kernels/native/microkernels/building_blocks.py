"""What the forms of micro-kernels share: their begin, branches, the epilogue, checks of a nest."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop, Transform, branch, when
from tilewise.kernels.native.ir.vectors import Value, Vectors, begin_function, const
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    LOAD_C,
    RELU,
    Arguments,
    DepthwiseArguments,
    SkinnyGemmArguments,
    VolumeArguments,
    ceiling_of,
)
from tilewise.kernels.nest import Nest
from tilewise.kernels.target.model import Target

RecordT = TypeVar(
    "RecordT", Arguments[Value], DepthwiseArguments[Value], SkinnyGemmArguments[Value]
)


def begin_kernel(
    module: ir.Module, name: str, arguments: type[RecordT]
) -> tuple[ir.Function, Builder, RecordT]:
    """Add a micro-kernel; return it, a builder in its first block, and its arguments."""
    names = [field.name for field in fields(arguments)]
    fn, builder, arg = begin_function(module, f"tilewise_kernel_{name}", names)
    return fn, builder, arguments(**arg)


def if_any(builder: Builder, count: Value, then: Transform, values: list[Value]) -> list[Value]:
    """Return `then(values)` where `count` is above 0, else `values`."""
    return branch(builder, builder.icmp_signed(">", count, const(0)), then, values)


def run_if(
    builder: Builder,
    condition: Value,
    then: Callable[[], object],
    otherwise: Callable[[], object] | None = None,
) -> None:
    """Emit a branch that carries no values."""

    def transform(emit: Callable[[], object]) -> Transform:
        def run(nothing: list[Value]) -> list[Value]:
            emit()
            return nothing

        return run

    branch(builder, condition, transform(then), [], transform(otherwise) if otherwise else None)


def run_if_any(builder: Builder, count: Value, then: Callable[[], object]) -> None:
    """Emit `then` where `count` is above 0."""
    run_if(builder, builder.icmp_signed(">", count, const(0)), then)


def end_of_whole(builder: Builder, count: Value, step: int) -> Value:
    """Return the largest multiple of `step` up to `count`."""
    return builder.sub(count, builder.srem(count, const(step)))


class TapLoops:
    """The loops over filter taps: over slices, where a filter has several of them, rows, columns.

    Attributes:
        tap: the number of the present tap.
        moved: the words that it moves A by.
        carried: the carried values as this iteration sees them.
    """

    def __init__(self, builder: Builder, arg: Arguments[Value], carried: Sequence[Value]) -> None:
        levels = [("row", arg.tap_rows, arg.a_tap_row), ("col", arg.tap_cols, arg.a_tap_col)]
        if isinstance(arg, VolumeArguments):
            levels.insert(0, ("slice", arg.tap_slices, arg.a_tap_slice))
        self.tap, self.moved, self.carried = const(0), const(0), list(carried)
        self._loops: list[tuple[CountedLoop, Value]] = []
        for name, count, words in levels:
            loop = CountedLoop(builder, self.carried, f"tap.{name}")
            before = builder.mul(self.tap, count) if self._loops else const(0)
            self.tap = builder.add(before, loop.index)
            self.moved = builder.add(self.moved, builder.mul(loop.index, words))
            self.carried = loop.carried
            self._loops.append((loop, count))

    def close(self, carried: Sequence[Value]) -> list[Value]:
        """End the body, go on after all loops, and return the final values."""
        for loop, count in reversed(self._loops):
            carried = loop.close(carried, count, 1)
        return list(carried)


@dataclass(frozen=True)
class EpilogueEmitter:
    """Emits what a call does to its sums besides adding products, as its flags say.

    Attributes:
        v: vectors of accumulators.
        flags: of the call.
        possible: which of `ADD_BIAS` and `RELU` a call may ask for, and `CEILING`; others have no
            code.
    """

    v: Vectors
    flags: Value
    possible: int

    @property
    def ceiling(self) -> int | None:
        """Where relu ends; None for nowhere."""
        return ceiling_of(self.possible)

    def when(self, flag: int, then: Transform, values: list[Value]) -> list[Value]:
        """Return `then(values)` where the flag is set, else `values`."""
        return when(self.v.builder, self.flags, flag, self.possible | LOAD_C, then, values)

    def add(
        self, flag: int, values: list[Value], others: Callable[[], Iterable[Value]]
    ) -> list[Value]:
        """Return the sums of `values` and `others()` where the flag is set, else `values`.

        A list is loaded before anything is added, an iterator one vector at a time.
        """

        def added(values: list[Value]) -> list[Value]:
            return [self.v.add(x, y) for x, y in zip(values, others(), strict=True)]

        return self.when(flag, added, values)

    def relu(self, values: list[Value]) -> list[Value]:
        """Return the values after relu where the call asks for it."""
        return self.when(RELU, lambda xs: [self.v.relu(x, self.ceiling) for x in xs], values)


def emit_results(
    ends: EpilogueEmitter,
    sums: list[Value],
    places: list[Value],
    biases: list[Value],
    masks: list[Value | None],
) -> None:
    """Emit that vectors of C are what a call's flags make of sums: their places, biases, masks."""
    v = ends.v
    sums = ends.add(
        LOAD_C, sums, lambda: [v.load(at, mask) for at, mask in zip(places, masks, strict=True)]
    )
    sums = ends.add(
        ADD_BIAS, sums, lambda: (v.load(at, mask) for at, mask in zip(biases, masks, strict=True))
    )
    for value, at, mask in zip(ends.relu(sums), places, masks, strict=True):
        v.store(value, at, mask)


def vectors_of_tile(nest: Nest, target: Target) -> int:
    """Return the vectors in a row of the register tile.

    Raises:
        LoweringError: its columns are not whole vectors of the target.
    """
    dtype = nest.problem.element.name
    vectors, rest = divmod(nest.tile.cols, target.lanes(dtype))
    if rest:
        raise LoweringError(
            f"step register: cols={nest.tile.cols} is not a multiple of the "
            f"{target.lanes(dtype)} {dtype} lanes of {target.cpu}"
        )
    return vectors


def check_nontemporal(nest: Nest, lanes: int, *, is_whole: bool) -> None:
    """Raise LoweringError for a nontemporal store of rows of C that are not whole vectors."""
    if nest.store.is_nontemporal and not is_whole:
        raise LoweringError(
            f"step nontemporal: vectors of {lanes} do not divide the rows of C of {nest.problem}; "
            "drop the step"
        )
