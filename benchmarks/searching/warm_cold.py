"""What the two comparisons of warm searches with cold ones share."""

from argparse import ArgumentParser
from collections.abc import Collection
from dataclasses import dataclass
from statistics import mean, median

from tilewise.kernels.target.costs import CASCADE_LAKE, ZEN5, Costs

FITTED_COSTS = {"znver5": ZEN5, "cascadelake": CASCADE_LAKE}
"""By the processor whose recorded spaces they were fitted to."""

NEAR = 1.02  # of the best time: what a search is to come to
FIRST_SEED = 1000  # of the searches that filled the stores; those that are compared begin at 0


@dataclass(frozen=True)
class Counts:
    """Trials of cold and of warm searches until near the best, by seed."""

    cold: list[int]
    warm: list[int]

    @property
    def ratio(self) -> float:
        """Warm over cold, of the medians."""
        return median(self.warm) / median(self.cold)

    @property
    def mean_ratio(self) -> float:
        """Warm over cold, of the means."""
        return mean(self.warm) / mean(self.cold)


def add_costs_of(parser: ArgumentParser) -> None:
    """Let the caller begin all searches with the costs of another processor."""
    parser.add_argument(
        "--costs-of", choices=FITTED_COSTS, help="begin with those of this processor"
    )


def costs_of(parser: ArgumentParser, cpu: str, own: Collection[Costs]) -> Costs:
    """The costs of a processor; the parser's error where all searches begin with them anyway.

    Args:
        parser: of the command line.
        cpu: one of `FITTED_COSTS`.
        own: what the searches would begin with.
    """
    costs = FITTED_COSTS[cpu]
    if all(each == costs for each in own):
        parser.error(f"--costs-of {cpu}: searches begin with these without it")
    return costs
