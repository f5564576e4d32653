"""What the operations of a payload say of the inputs and of the results that it is held to."""

from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.lowering.structure import LOOPS, walk
from tilewise.kernels.mlir.proof.child.comparison import Rules
from tilewise.kernels.mlir.proof.child.perturb import computed_in, width_of

_ADDS = {"arith.addf", "arith.subf", "math.fma"}
_SUMS = {"vector.contract", "vector.outerproduct", "vector.fma", "vector.reduction",
         "vector.multi_reduction"}  # fmt: skip
_LOOPS = {*LOOPS, "scf.while", "affine.for", "affine.parallel"}
_TO_INTEGERS = {"arith.fptosi", "arith.fptoui"}
_ANY_ZERO = {"arith.maxnumf", "arith.minnumf"}
_ASSUMES = {"fast", "nnan", "ninf", "nsz"}
NON_FINITE = {"infinite", "largest", "nan", "extreme"}
"""Kinds of inputs of which a right script may give more infinities and NaNs (`Rules`)."""


@dataclass(frozen=True)
class Traits:
    """What a payload's operations are.

    Attributes:
        has_sums: floats are summed in loops.
        makes_integers: floats become integers, which is not defined beyond an integer's range.
        assumes_finite: operations say that they take no NaN, infinity or negative zero.
        has_any_zero: an operation does not define the sign of a zero.
        widest: the widest float type that results are rounded to; empty without any.
    """

    has_sums: bool
    makes_integers: bool
    assumes_finite: bool
    has_any_zero: bool
    widest: str

    def rules(self, kind: str) -> Rules:
        """Return what a right script keeps on a kind of inputs."""
        return Rules(
            has_sums=self.has_sums,
            has_signed_zeros=not (self.has_sums or self.has_any_zero or self.assumes_finite),
            may_spread=self.has_sums and kind in NON_FINITE,
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
    """Return whether an op of linalg that reduces has an addition of floats in its body."""
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
