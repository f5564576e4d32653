"""What a payload's operations imply for its inputs and for the results that scripts preserve."""

from dataclasses import dataclass
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import run_passes
from tilewise.kernels.mlir.lowering.structure import LOOPS, function_of, walk
from tilewise.kernels.mlir.proof.child.comparison import ComparisonRules
from tilewise.kernels.mlir.proof.child.instrument import (
    AT_LEAST_OR_NAN,
    LESS_OR_NAN,
    LOWER_LINALG,
    add_argument,
    any_of,
    compare,
    computed_in,
    constant,
    like,
    make,
    store_if,
    width_of,
)

_ADDS = {"arith.addf", "arith.subf", "math.fma"}
_SUMS = {"vector.contract", "vector.outerproduct", "vector.fma", "vector.reduction",
         "vector.multi_reduction"}  # fmt: skip
_LOOPS = {*LOOPS, "scf.while", "affine.for", "affine.parallel"}
_TO_INTEGERS = {"arith.fptosi", "arith.fptoui"}
_ANY_ZERO = {"arith.maxnumf", "arith.minnumf"}
_ASSUMES = {"fast", "nnan", "ninf", "nsz"}
NON_FINITE = {"infinite", "largest", "nan"}
"""Kinds of inputs with infinities or NaNs."""


@dataclass(frozen=True)
class Traits:
    """What a payload's operations are.

    Attributes:
        has_sums: floats are summed in loops.
        makes_integers: floats become integers (`watch_conversions`).
        assumes_finite: operations exclude NaNs, infinities or negative zeros.
        has_any_zero: an operation leaves the sign of a zero undefined.
        widest: the widest float type of rounded results; empty without any.
    """

    has_sums: bool
    makes_integers: bool
    assumes_finite: bool
    has_any_zero: bool
    widest: str

    def rules(self, kind: str, is_mixed: bool = False) -> ComparisonRules:
        """Return what a right script preserves on a kind of inputs.

        `is_mixed` means that the script adds inputs before it multiplies them.
        """
        return ComparisonRules(
            has_sums=self.has_sums,
            has_signed_zeros=not (self.has_sums or self.has_any_zero or self.assumes_finite),
            may_spread=self.has_sums and (kind == "extreme" or (is_mixed and kind in NON_FINITE)),
            may_overflow=self.has_sums and kind not in NON_FINITE,
        )


def traits_of(module: Any) -> Traits:
    """Return the traits of a module whose linalg ops are generic."""
    operations = [op for op, _ in walk(module.operation)]
    names = {op.name for op in operations}
    return Traits(
        has_sums=_sums(operations) or bool(names & _SUMS or (names & _LOOPS and names & _ADDS)),
        makes_integers=bool(names & _TO_INTEGERS),
        assumes_finite=any(_assumes(op) for op in operations),
        has_any_zero=bool(names & _ANY_ZERO),
        widest=max(computed_in(module), key=width_of, default=""),
    )


def _sums(operations: list[Any]) -> bool:
    """Return whether a reducing linalg op has an addition of floats in its body."""
    return any(
        "reduction" in str(op.attributes["iterator_types"])
        and any(inner.name in _ADDS for inner, _ in walk(op))
        for op in operations
        if "iterator_types" in op.attributes
    )


def _assumes(operation: Any) -> bool:
    if "fastmath" not in operation.attributes:
        return False
    flags = str(operation.attributes["fastmath"]).partition("<")[2].rstrip(">").split(",")
    return not _ASSUMES.isdisjoint(flags)


def watch_conversions(module: Any) -> None:
    """Give the only function a last argument that a conversion out of range sets to 1.

    The result of such a conversion is undefined: vector code may give another integer than scalar
    code.
    """
    run_passes(module, LOWER_LINALG)
    function = function_of(module)
    conversions = [op for op, _ in walk(function) if op.name in _TO_INTEGERS]
    with ir.Location.unknown():
        word = add_argument(function, "memref<1xi64>")
        for operation in conversions:
            with ir.InsertionPoint(operation):
                _watch_conversion(operation, word)


def _watch_conversion(operation: Any, word: Any) -> None:
    value, kind = operation.operands[0], operation.results[0].type
    integer = kind.element_type if isinstance(kind, ir.VectorType) else kind
    is_signed = operation.name == "arith.fptosi"
    end = 2.0 ** (integer.width - is_signed)
    wide = like(kind, ir.F64Type.get())
    if value.type != wide:
        value = make("arith.extf", [value], wide)
    value = make("math.trunc", [value], wide)
    limits = ((LESS_OR_NAN, -end if is_signed else 0.0), (AT_LEAST_OR_NAN, end))
    below, above = (
        compare(predicate, value, constant(wide, limit), "arith.cmpf")
        for predicate, limit in limits
    )
    store_if(any_of(make("arith.ori", [below, above], below.type)), 1, word)
