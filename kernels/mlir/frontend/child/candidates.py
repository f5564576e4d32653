"""The ops of a module that are problems, and those that should have been."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.mlir.frontend.child.fusion import Ending
from tilewise.kernels.mlir.frontend.child.narrow import narrow
from tilewise.kernels.mlir.frontend.child.operations import operations, where, why_left
from tilewise.kernels.mlir.frontend.child.recognise import recognised
from tilewise.kernels.mlir.frontend.child.values import Structured, structured
from tilewise.kernels.mlir.frontend.graph import Occurrence
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.problem import parse_problem


@dataclass(frozen=True)
class CandidateOp:
    """An op that is a problem, or that multiplies, convolves or pools and is not.

    Attributes:
        at: its function, and its number there.
        found: the problem with what follows the op and is included.
        narrow: the problem of the integers that ops before it widen or dequantise; None for none.
        reason: why it is not a problem in the types that it has itself; else empty.
    """

    op: Any
    at: tuple[str, int]
    seen: Structured | None = None
    found: tuple[Occurrence, Ending] | None = None
    narrow: Occurrence | None = None
    reason: str = ""

    @property
    def where(self) -> str:
        """Its place."""
        return where(self.op, *self.at)

    @property
    def problem(self) -> Occurrence | None:
        """The problem that reads the fewest bytes; None for none."""
        return self.narrow or (self.found[0] if self.found else None)


def candidates(module: Any) -> Iterator[CandidateOp]:
    """Yield every op of a module on linalg that is a problem, or should have been one."""
    for op, function, number in operations(module.operation):
        at = function, number
        seen = structured(op)
        if seen is None:
            if reason := why_left(op):
                yield CandidateOp(op, at, reason=reason)
            continue
        place, found, narrowed, reason = where(op, *at), None, None, ""
        try:
            found = recognised(seen, place)
        except NestRefusedError as refusal:
            reason = str(refusal)
        if found is None and not reason:
            continue
        try:
            narrowed = narrow(seen, place)
        except NestRefusedError as refusal:
            reason = reason and str(refusal)
        yield CandidateOp(op, at, seen, found, narrowed, reason)


def is_quantised(found: Occurrence) -> bool:
    """Return whether a problem has unsigned bytes or zero points."""
    problem = parse_problem(found.problem)
    return bool(problem.zero or problem.b) or problem.dtype == "u8"
