"""The weights of the analytical model: what one of each amount costs.

`tilewise.search.model.analytical` counts the amounts of a schedule. `benchmarks/replay/fit.py`
fitted the weights, none below zero, to recorded spaces of problems of different kinds, for each
processor that was recorded. Cores differ in what hides behind computing, and in what a line costs
that the caches have to fetch. `tilewise.search.transfer.calibration` corrects the weights by trials
on another processor.
"""

from dataclasses import astuple, dataclass, fields
from typing import Self

from tilewise.kernels.target.cores import DEFAULT
from tilewise.kernels.target.costs import FITTED, Costs
from tilewise.kernels.target.model import Target

AMOUNTS = tuple(field.name for field in fields(Costs) if field.name != "overlap")
READS = tuple(name for name in AMOUNTS if "_from_" in name)
UNHIDDEN = ("calls", "c_lines", "packed_a", "packed_b", "packed_b_far", "fetched_b")
"""Names of all amounts; of the reads, which hide behind computing; of what hides behind nothing."""


@dataclass(frozen=True)
class Weights:
    """What one of each amount costs, in cycles of the multiply-add units.

    Attributes:
        cycles: for one of each of `AMOUNTS`.
        overlap: how well reading hides behind computing: 1 is not at all (their cycles add up),
            infinity is wholly (the longer one counts).
    """

    cycles: tuple[float, ...]
    overlap: float

    @classmethod
    def of(cls, costs: Costs) -> Self:
        """Return the weights of a core."""
        *cycles, overlap = astuple(costs)
        return cls(tuple(cycles), overlap)


DEFAULT_WEIGHTS = Weights.of(DEFAULT.costs)
FITTED_WEIGHTS = {cpu: Weights.of(costs) for cpu, costs in FITTED.items()}
"""Weights by LLVM's name of the processor whose recorded spaces they were fitted to."""


def shipped(target: Target) -> Weights:
    """The weights that a search on a target begins with.

    Those of Cascade Lake on Intel's processors, those of Zen 5 on all others. One more of Intel's
    was recorded, a server of the Golden Cove family (docs/search.md). On its eighteen spaces the
    weights of Cascade Lake choose schedules with 77 to 100% of the best one's speed, those of Zen 5
    schedules with 38 to 100%.
    """
    return Weights.of(target.core.costs)
