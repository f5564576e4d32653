"""Steps about how the result is written."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tilewise.kernels.schedule.steps.base import Step


@dataclass(frozen=True)
class Nontemporal(Step):
    """Write the result to memory past the caches, by non-temporal stores.

    MLIR `vector.store {nontemporal}`, OpenMP nontemporal. The native lowering alone: scripts
    say it in a comment.

        nontemporal operand=C
    before                          after
        for n, oh, ow, co:              for n, oh, ow, co:
            C = acc                         C = acc, and no cache keeps it

    An ordinary store fetches the line that it writes. Where the result is larger than the
    caches, or is not in them, that is a third of all that moves.
    """

    name: ClassVar[str] = "nontemporal"
    operand: Literal["C"] = "C"
