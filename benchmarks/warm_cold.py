"""What the two comparisons of warm searches with cold ones share."""

from argparse import ArgumentParser
from collections.abc import Collection
from dataclasses import dataclass
from statistics import mean, median

from kernels.target.cores import core_of
from kernels.target.model import Target
from search.costs import USUAL, Costs, shipped

NEAR = 1.02  # of the best time: what a search is to come to
FIRST_SEED = 1000  # of the searches that filled the stores; those that are compared begin at 0
USUAL_CPU = "znver5"  # whose costs are those of every processor without its own


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
    parser.add_argument("--costs-of", metavar="CPU", help="begin with those of this processor")


def costs_of(parser: ArgumentParser, cpu: str, own: Collection[Costs]) -> Costs:
    """The costs of a processor that has some; else the parser's error.

    Args:
        parser: of the command line.
        cpu: by LLVM's name.
        own: what the searches would begin with.
    """
    if not core_of(cpu)[1]:
        parser.error(f"--costs-of {cpu}: no known processor, by LLVM's names")
    costs = shipped(Target(cpu))
    if costs == USUAL and cpu != USUAL_CPU:
        parser.error(f"--costs-of {cpu}: it has none of its own; {USUAL_CPU} has the usual ones")
    if all(each == costs for each in own):
        parser.error(f"--costs-of {cpu}: searches begin with these without it")
    return costs
