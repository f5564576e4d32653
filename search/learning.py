"""The analytical model's costs as the trials of earlier searches on this processor show them.

The shipped costs (`search.costs`) were fitted on one processor; on another, a row that is read in
place may cost twice as much, or reading may not hide behind computing. The trials in the store
tell: the times of every earlier search are compared with the model's, up to a factor of the
search's own, and the costs are moved to where the errors are least. Each is held to what was
shipped, as tightly as the trials themselves find likely; where the shipped costs explain them as
well, nothing moves.

This is regression with a Gaussian prior on the logarithms of the costs, linearised again at each
step (Gauss-Newton), its width and the overlap chosen by the evidence for them (MacKay,
Bayesian Interpolation, Neural Computation 4(3), 1992). The shipped costs go only where the
evidence against them is very strong (Kass and Raftery, Bayes Factors, Journal of the American
Statistical Association 90, 1995).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from search.costs import EXTRA, NAMES, SHIPPED, TRAFFIC, Costs
from search.model import amounts
from search.parameters import completed
from search.records import Solved
from search.space import Space

Array = NDArray[np.float64]
AnySpace = TypeVar("AnySpace", bound=Space)

FAST = 0.5  # a trial so much slower than the best counts half
ERROR = 0.05  # of the logarithm of a time, by a model that suits the processor
APART = 10  # trials of one search whose errors are not each other's
LEAST = 8  # trials, of fewer a search's own factor cannot be told
OVERLAPS = (1.0, 1.5, 2.5, SHIPPED.overlap)
WIDTHS = (0.03, 0.1, 0.3, 1.0, 2.0)  # of the prior, in logarithms of costs
STEPS, STEP, FARTHEST = 10, 1.0, 4.0  # of Gauss and Newton; the longest, and how far they lead
SETTLED = 0.02
STRONG = 5.0  # the logarithm of a Bayes factor: very strong evidence, in the words of the source

_is_extra = np.array([name in EXTRA for name in NAMES])
_is_traffic = np.array([name in TRAFFIC for name in NAMES])
_is_computing = ~_is_extra & ~_is_traffic


class Trials(NamedTuple):
    """Those of some searches, one search after the other.

    Attributes:
        amounts: of each of `costs.NAMES`, a row for each trial.
        logs: of their times.
        weights: of the trials; those of one search add up to 1.
        firsts: the first row of each search.
    """

    amounts: Array
    logs: Array
    weights: Array
    firsts: NDArray[np.intp]

    def centred(self, values: Array) -> Array:
        """Values of trials (rows) less the weighted mean of their search: its own factor."""
        weighted = self.weights.reshape(-1, *[1] * (values.ndim - 1)) * values
        means = np.add.reduceat(weighted, self.firsts)
        counts = np.diff(self.firsts, append=len(values))
        centred: Array = values - np.repeat(means, counts, axis=0)
        return centred


def learned(space: AnySpace, searches: Sequence[Solved]) -> AnySpace:
    """`space` with the costs that earlier searches speak for, of those on its very target."""
    here = space.target.canonical
    searched = [_timed(space, solved) for solved in searches if solved.target == here]
    known = [(rows, times) for rows, times in searched if len(times) >= LEAST]
    return replace(space, costs=fitted(_together(known))) if known else space


def fitted(known: Trials) -> Costs:
    """The likeliest costs by the trials of searches, or the shipped ones if they do as well."""
    found: list[tuple[float, Costs]] = []
    for overlap in OVERLAPS:
        moved = np.zeros(len(NAMES))
        for width in WIDTHS:
            moved = _moved(known, moved, overlap, width)
            costs = tuple((np.array(SHIPPED.cycles) * np.exp(moved)).tolist())
            found.append((_evidence(known, moved, overlap, width), Costs(costs, overlap)))
    evidence, likeliest = max(found, key=lambda pair: pair[0])
    *_, loss = _system(known, np.zeros(len(NAMES)), SHIPPED.overlap)
    return likeliest if evidence + loss / 2 > STRONG else SHIPPED


def _timed(space: Space, solved: Solved) -> tuple[Array, Array]:
    """The amounts and times of a search's trials, as far as its points are still points."""
    former = Space(solved.problem, space.target)
    told = (*solved.points, *solved.slower)
    stored = [(completed(former.parameters, params), time) for params, time in told]
    timed = [(point, time) for point, time in stored if former.holds(point)]
    rows = [list(amounts(former, point).values()) for point, _ in timed]
    return np.array(rows), np.array([time for _, time in timed])


def _together(known: Sequence[tuple[Array, Array]]) -> Trials:
    weights = [1 / (1 + (times / times.min() - 1) / FAST) for _, times in known]
    counts = [len(times) for _, times in known]
    return Trials(
        np.vstack([rows for rows, _ in known]),
        np.log(np.concatenate([times for _, times in known])),
        np.concatenate([one / one.sum() for one in weights]),
        np.cumsum([0, *counts[:-1]]),
    )


def _predicted(rows: Array, moved: Array, overlap: float) -> tuple[Array, Array]:
    """Logarithms of the model's times, and how they change with those of the costs."""
    cycles = rows * (np.array(SHIPPED.cycles) * np.exp(moved))
    extra, traffic, computing = (
        cycles[:, which].sum(axis=1) for which in (_is_extra, _is_traffic, _is_computing)
    )
    both = (computing**overlap + traffic**overlap) ** (1 / overlap)
    total = extra + both
    share = np.ones_like(cycles)
    share[:, _is_traffic] = ((traffic / both) ** (overlap - 1))[:, None]
    share[:, _is_computing] = ((computing / both) ** (overlap - 1))[:, None]
    return np.log(total), cycles * share / total[:, None]


def _system(known: Trials, moved: Array, overlap: float) -> tuple[Array, Array, float]:
    """Curvature, slope and twice the loss of the likelihood, in units of `ERROR`."""
    predicted, changes = _predicted(known.amounts, moved, overlap)
    errors, changes = known.centred(known.logs - predicted), known.centred(changes)
    weighted = known.weights[:, None] * changes
    scale = APART / ERROR**2
    loss = float(known.weights @ errors**2)
    return scale * (weighted.T @ changes), scale * (weighted.T @ errors), scale * loss


def _moved(known: Trials, moved: Array, overlap: float, width: float) -> Array:
    """How far the logarithms of the costs move from those that were shipped."""
    for _ in range(STEPS):
        curvature, slope, _ = _system(known, moved, overlap)
        curvature += np.eye(len(NAMES)) / width**2
        step = np.clip(np.linalg.solve(curvature, slope - moved / width**2), -STEP, STEP)
        moved = np.clip(moved + step, -FARTHEST, FARTHEST)
        if np.abs(step).max() < SETTLED:
            break
    return moved


def _evidence(known: Trials, moved: Array, overlap: float, width: float) -> float:
    """Logarithm of how likely the trials are with a prior so wide, by Laplace's method.

    That of the shipped costs, on the same scale, is minus half their loss.
    """
    curvature, _, loss = _system(known, moved, overlap)
    curvature += np.eye(len(NAMES)) / width**2
    logdet = float(np.linalg.slogdet(curvature)[1])
    fit = loss + float(moved @ moved) / width**2
    return -0.5 * (fit + logdet) - len(NAMES) * float(np.log(width))
