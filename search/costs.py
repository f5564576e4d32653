"""What the analytical model's costs are, in cycles of the multiply-add units.

`search.model` counts how much there is of each in a schedule. The weights here were fitted, none
below zero, to recorded spaces of problems of different kinds (`benchmarks/replay/fit.py`) on one
processor; what trials on another say of them, `search.learning` takes in.
"""

from dataclasses import dataclass

FITTED = {
    "multiply_adds": 1.0,
    "loads": 0.0882,
    "few_chains": 0.0361,
    "steps": 0.284,
    "unrolled": 0.0133,
    "crowded": 0.026,
    "calls": 37.3,
    "edges": 0.118,
    "c_lines": 0.276,
    "a_from_l2": 8.25,
    "a_from_l3": 9.6,
    "a_rows_from_l2": 7.52,
    "a_rows_from_l3": 9.65,
    "b_from_l2": 1.19,
    "b_from_l3": 1.96,
    "b_rows_from_l2": 1.85,
    "b_rows_from_l3": 2.57,
    "packed_a": 3.95,
    "packed_b": 2.03,
    "packed_b_far": 5.2,
    "fetched_b": 5.06,
}
"""Cycles for each; see `search.model.amounts`."""

NAMES = tuple(FITTED)
TRAFFIC = tuple(name for name in NAMES if "_from_" in name)
EXTRA = ("calls", "c_lines", "packed_a", "packed_b", "packed_b_far", "fetched_b")


@dataclass(frozen=True)
class Costs:
    """The weights of a model.

    Attributes:
        cycles: for one of each of `NAMES`.
        overlap: how well reading hides behind computing: 1 is not at all (their cycles add up),
            infinity is wholly (the longer one counts).
    """

    cycles: tuple[float, ...] = tuple(FITTED.values())
    overlap: float = 8.0


SHIPPED = Costs()
