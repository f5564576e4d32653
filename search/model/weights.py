"""The weights of the analytical model: what one of each amount costs.

`tilewise.search.model.analytical` counts the amounts of a schedule. `benchmarks/replay/fit.py`
fitted the weights, none below zero, to recorded spaces of problems of different kinds, for each
processor that was recorded. Cores differ in what hides behind computing, and in what a line costs
that the caches have to fetch. `tilewise.search.transfer.calibration` corrects the weights by trials
on another processor.
"""

from dataclasses import dataclass

from tilewise.kernels.target.cores import is_intel
from tilewise.kernels.target.model import Target

ZEN5 = {
    "multiply_adds": 1.0,
    "loads": 0.0945,
    "few_chains": 0.0501,
    "steps": 0.0263,
    "unrolled": 0.001,
    "crowded": 0.021,
    "calls": 32.7,
    "edges": 0.112,
    "c_lines": 0.27,
    "a_from_l2": 8.14,
    "a_from_l3": 9.52,
    "a_rows_from_l2": 7.26,
    "a_rows_from_l3": 8.95,
    "b_from_l2": 1.17,
    "b_from_l3": 1.92,
    "b_rows_from_l2": 1.77,
    "b_rows_from_l3": 2.49,
    "packed_a": 3.44,
    "packed_b": 2.0,
    "packed_b_far": 5.23,
    "fetched_b": 4.89,
}
"""Cycles for each on AMD's Zen 5; see `tilewise.search.model.analytical.amounts`.

No trial there speaks for `unrolled`. The weight is not zero, because trials elsewhere may.
"""

CASCADE_LAKE = {
    "multiply_adds": 1.0,
    "loads": 0.448,
    "few_chains": 0.0128,
    "steps": 1.72,
    "unrolled": 0.0151,
    "crowded": 0.0604,
    "calls": 0.1,
    "edges": 0.0066,
    "c_lines": 1.57,
    "a_from_l2": 1.57,
    "a_from_l3": 2.87,
    "a_rows_from_l2": 0.86,
    "a_rows_from_l3": 0.919,
    "b_from_l2": 0.19,
    "b_from_l3": 1.42,
    "b_rows_from_l2": 0.538,
    "b_rows_from_l3": 1.31,
    "packed_a": 8.83,
    "packed_b": 2.03,
    "packed_b_far": 0.536,
    "fetched_b": 0.1,
}
"""The same on Intel's Cascade Lake, where nothing seems to hide behind computing.

No trial there speaks for `calls` and `fetched_b`. Their weights are not zero, because trials
elsewhere may.
"""

AMOUNTS = tuple(ZEN5)
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


DEFAULT_WEIGHTS = Weights(tuple(ZEN5.values()), overlap=8.0)
FITTED_WEIGHTS = {
    "znver5": DEFAULT_WEIGHTS,
    "cascadelake": Weights(tuple(CASCADE_LAKE.values()), overlap=1.0),
}
"""Weights by LLVM's name of the processor whose recorded spaces they were fitted to."""


def shipped(target: Target) -> Weights:
    """The weights that a search on a target begins with.

    Those of Cascade Lake on Intel's processors, those of Zen 5 on all others. One more of Intel's
    was recorded, a server of the Golden Cove family (docs/search.md). On its eighteen spaces the
    weights of Cascade Lake choose schedules with 77 to 100% of the best one's speed, those of Zen 5
    schedules with 38 to 100%.
    """
    return FITTED_WEIGHTS["cascadelake"] if is_intel(target.cpu) else DEFAULT_WEIGHTS
