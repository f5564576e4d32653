"""An op of a module by itself: the payload of a script that is proven on the op as it stands."""

from dataclasses import dataclass, replace

from tilewise.kernels.mlir.frontend.imported import Occurrence
from tilewise.kernels.mlir.frontend.nest import Nest
from tilewise.kernels.problem import Accuracy


@dataclass(frozen=True)
class LoneOp:
    """A user's op in a function of its own, `@kernel`, with nothing of what is around it.

    The function takes the op's inputs in their order, then the result's buffer, and returns the
    result. The op is the module's: its name, maps, body, attributes and types.

    Attributes:
        payload: that function.
        nest: the op's loops and accesses.
        found: the problem that the op is, by itself.
        within: the problem that it is with what the module has around it.
        starts_from_fill: whether the result starts from zeros, and not from what it holds.
        first_factor: the input that its body multiplies first, 0 or 1.
    """

    payload: str
    nest: Nest
    found: Occurrence
    within: Occurrence
    starts_from_fill: bool
    first_factor: int

    def with_accuracy(self, accuracy: Accuracy) -> "LoneOp":
        """The same with both problems of an accuracy."""
        found, within = (one.with_accuracy(accuracy) for one in (self.found, self.within))
        return replace(self, found=found, within=within)
