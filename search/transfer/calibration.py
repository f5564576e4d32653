"""Correct the analytical model's costs by earlier searches on this processor.

The shipped costs (`tilewise.kernels.target.costs`) were fitted on two processors. Calibration
compares the times of earlier searches with the model's, up to a factor per search, and moves the
costs to the least errors. This is regression with a Gaussian prior on the logarithms of the
costs, linearised at each step (Gauss-Newton). The evidence chooses the prior's width and the
overlap (MacKay, Bayesian Interpolation, Neural Computation 4(3), 1992). The shipped costs are
only replaced on very strong evidence (Kass and Raftery, Bayes Factors, Journal of the American
Statistical Association 90, 1995).
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.nest import nest_of
from tilewise.kernels.target.costs import Costs
from tilewise.kernels.target.model import Target
from tilewise.search.model.amounts import AMOUNTS, READS, UNHIDDEN, cycles_of
from tilewise.search.model.analytical import AnalyticalModel, amounts
from tilewise.search.records import Solved
from tilewise.search.space.space import Space

Array = NDArray[np.float64]

HALF_WEIGHT_SLOWDOWN = 0.5  # a trial slower than the best by this share counts half
TRIAL_ERROR = 0.05  # of the logarithm of a time, by a model that suits the processor
EFFECTIVE_TRIALS = 10  # independent errors per search; trials of one search are correlated
MIN_TRIALS = 8  # of a search; fewer cannot tell its own factor
TRIED_OVERLAPS = (1.0, 1.5, 2.5, 8.0)  # in addition to the prior's own
TRIED_WIDTHS = (0.03, 0.1, 0.3, 1.0, 2.0)  # of the prior, in logarithms of costs
MAX_STEPS = 10  # of Gauss and Newton
MAX_STEP = 1.0  # of the logarithm of a cost, in one step
MAX_MOVE = 4.0  # of the logarithm of a cost, in all
LAST_STEP = 0.02  # a step whose logarithms all move less is the last
VERY_STRONG_EVIDENCE = 5.0  # logarithm of a Bayes factor, in the words of the source

_is_unhidden = np.array([name in UNHIDDEN for name in AMOUNTS])
_is_read = np.array([name in READS for name in AMOUNTS])
_is_computing = ~_is_unhidden & ~_is_read


class Trials(NamedTuple):
    """The trials of some searches, one search after the other.

    Attributes:
        amounts: a row for each trial, a column for each of `AMOUNTS`.
        logs: logarithms of times.
        shares: weight of each trial; those of one search add up to 1.
        firsts: the first row of each search.
        prior: costs that hold unless the trials contradict them.
    """

    amounts: Array
    logs: Array
    shares: Array
    firsts: NDArray[np.intp]
    prior: Costs

    def centred(self, values: Array) -> Array:
        """Return values of trials (rows) less the weighted mean of their search."""
        weighted = self.shares.reshape(-1, *[1] * (values.ndim - 1)) * values
        means = np.add.reduceat(weighted, self.firsts)
        counts = np.diff(self.firsts, append=len(values))
        centred: Array = values - np.repeat(means, counts, axis=0)
        return centred


class Fit(NamedTuple):
    """Costs moved from the prior's, in logarithms, with their overlap and the prior's width."""

    moved: Array
    overlap: float
    width: float

    def costs(self, prior: Costs) -> Costs:
        """Return the costs moved from `prior`."""
        cycles = np.array(cycles_of(prior)) * np.exp(self.moved)
        return Costs(**dict(zip(AMOUNTS, cycles.tolist(), strict=True)), overlap=self.overlap)


def calibrate(model: AnalyticalModel, searches: Sequence[Solved]) -> Costs:
    """Return the costs that earlier searches on the model's exact target support.

    Trials on several threads teach nothing, because no cost stands for waiting on threads. Nor do
    convolutions with few channels per group, or other problems for them.
    """
    target = model.space.target
    if target.threads > 1 or model.space.workload.nest.group:
        return model.costs
    here = target.canonical
    alike = [one for one in searches if one.target == here and not nest_of(one.problem).group]
    searched = [_timed(target, solved) for solved in alike]
    known = [(rows, times) for rows, times in searched if len(times) >= MIN_TRIALS]
    return fitted(_together(known, model.costs)) if known else model.costs


def fitted(known: Trials) -> Costs:
    """Return the likeliest costs for the trials, or the prior's if they are as good."""
    found: list[tuple[float, Fit]] = []
    for overlap in sorted({*TRIED_OVERLAPS, known.prior.overlap}):
        moved = np.zeros(len(AMOUNTS))
        for width in TRIED_WIDTHS:
            moved = _moved(known, moved, overlap, width)
            fit = Fit(moved, overlap, width)
            found.append((_evidence(known, fit, TRIAL_ERROR), fit))
    likeliest = max(found, key=lambda pair: pair[0])[1]
    gain = _gain(known, likeliest) - log(len(found))
    return likeliest.costs(known.prior) if gain > VERY_STRONG_EVIDENCE else known.prior


def _timed(target: Target, solved: Solved) -> tuple[Array, Array]:
    """Return the amounts and times of a search's trials whose points still exist."""
    former = Space(solved.problem, target)
    trials = former.stored((*solved.points, *solved.slower))
    # The model is too rough about other tiles to tell what anything costs.
    timed = [(point, time) for point, time in trials if point["tile"].kind == "outer"]
    rows = [list(amounts(former, point).values()) for point, _ in timed]
    return np.array(rows), np.array([time for _, time in timed])


def _together(known: Sequence[tuple[Array, Array]], prior: Costs) -> Trials:
    weights = [1 / (1 + (times / times.min() - 1) / HALF_WEIGHT_SLOWDOWN) for _, times in known]
    counts = [len(times) for _, times in known]
    return Trials(
        np.vstack([rows for rows, _ in known]),
        np.log(np.concatenate([times for _, times in known])),
        np.concatenate([one / one.sum() for one in weights]),
        np.cumsum([0, *counts[:-1]]),
        prior,
    )


def _predicted(known: Trials, moved: Array, overlap: float) -> tuple[Array, Array]:
    """Return logarithms of the model's times and their derivatives by those of the costs."""
    cycles = known.amounts * (np.array(cycles_of(known.prior)) * np.exp(moved))
    unhidden, reading, computing = (
        cycles[:, which].sum(axis=1) for which in (_is_unhidden, _is_read, _is_computing)
    )
    both = (computing**overlap + reading**overlap) ** (1 / overlap)
    total = unhidden + both
    share = np.ones_like(cycles)
    share[:, _is_read] = ((reading / both) ** (overlap - 1))[:, None]
    share[:, _is_computing] = ((computing / both) ** (overlap - 1))[:, None]
    return np.log(total), cycles * share / total[:, None]


def _system(known: Trials, moved: Array, overlap: float) -> tuple[Array, Array, float]:
    """Return curvature, slope and twice the loss of the likelihood, for an error of 1."""
    predicted, changes = _predicted(known, moved, overlap)
    errors, changes = known.centred(known.logs - predicted), known.centred(changes)
    weighted = known.shares[:, None] * changes
    loss = float(known.shares @ errors**2)
    return (
        EFFECTIVE_TRIALS * (weighted.T @ changes),
        EFFECTIVE_TRIALS * (weighted.T @ errors),
        EFFECTIVE_TRIALS * loss,
    )


def _moved(known: Trials, moved: Array, overlap: float, width: float) -> Array:
    """Return how far the logarithms of the costs move from the prior's."""
    for _ in range(MAX_STEPS):
        curvature, slope, _ = _system(known, moved, overlap)
        curvature = curvature / TRIAL_ERROR**2 + np.eye(len(AMOUNTS)) / width**2
        slope = slope / TRIAL_ERROR**2 - moved / width**2
        step = np.clip(np.linalg.solve(curvature, slope), -MAX_STEP, MAX_STEP)
        moved = np.clip(moved + step, -MAX_MOVE, MAX_MOVE)
        if np.abs(step).max() < LAST_STEP:
            break
    return moved


def _evidence(known: Trials, fit: Fit, error: float) -> float:
    """Return the logarithm of the evidence by Laplace's method."""
    curvature, _, loss = _system(known, fit.moved, fit.overlap)
    curvature = curvature / error**2 + np.eye(len(AMOUNTS)) / fit.width**2
    logdet = float(np.linalg.slogdet(curvature)[1])
    misfit = loss / error**2 + float(fit.moved @ fit.moved) / fit.width**2
    return -0.5 * (misfit + logdet) - len(AMOUNTS) * log(fit.width)


def _gain(known: Trials, fit: Fit) -> float:
    """Return the logarithm of how much likelier the trials are than with the prior's costs.

    The error is at least what the better fit leaves: what neither explains is no evidence.
    """
    *_, left = _system(known, fit.moved, fit.overlap)
    *_, loss = _system(known, np.zeros(len(AMOUNTS)), known.prior.overlap)
    error = max(TRIAL_ERROR, sqrt(left / (EFFECTIVE_TRIALS * len(known.firsts))))
    return _evidence(known, fit, error) + 0.5 * loss / error**2
