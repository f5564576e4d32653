"""The analytical model's costs as the trials of earlier searches on this processor show them.

The shipped costs (`search.model.weights`) were fitted on two processors; on another, a row that is
read in place may cost twice as much, or reading may not hide behind computing. The trials in the
store
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
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.target.model import Target
from search.model.analytical import Model, amounts
from search.model.weights import AMOUNTS, READS, UNHIDDEN, Weights
from search.records import Solved
from search.space.parameters import completed
from search.space.space import Space
from search.space.tiles import tile_shape

Array = NDArray[np.float64]

FAST = 0.5  # a trial so much slower than the best counts half
ERROR = 0.05  # of the logarithm of a time, by a model that suits the processor
APART = 10  # trials of one search whose errors are not each other's
LEAST = 8  # trials, of fewer a search's own factor cannot be told
OVERLAPS = (1.0, 1.5, 2.5, 8.0)  # that are tried beside the prior's own
WIDTHS = (0.03, 0.1, 0.3, 1.0, 2.0)  # of the prior, in logarithms of costs
STEPS, STEP, FARTHEST = 10, 1.0, 4.0  # of Gauss and Newton; the longest, and how far they lead
SETTLED = 0.02
STRONG = 5.0  # the logarithm of a Bayes factor: very strong evidence, in the words of the source

_is_extra = np.array([name in UNHIDDEN for name in AMOUNTS])
_is_traffic = np.array([name in READS for name in AMOUNTS])
_is_computing = ~_is_extra & ~_is_traffic


class Trials(NamedTuple):
    """Those of some searches, one search after the other.

    Attributes:
        amounts: of each of `costs.AMOUNTS`, a row for each trial.
        logs: of their times.
        weights: of the trials; those of one search add up to 1.
        firsts: the first row of each search.
        prior: the costs that hold unless the trials speak against them.
    """

    amounts: Array
    logs: Array
    weights: Array
    firsts: NDArray[np.intp]
    prior: Weights

    def centred(self, values: Array) -> Array:
        """Values of trials (rows) less the weighted mean of their search: its own factor."""
        weighted = self.weights.reshape(-1, *[1] * (values.ndim - 1)) * values
        means = np.add.reduceat(weighted, self.firsts)
        counts = np.diff(self.firsts, append=len(values))
        centred: Array = values - np.repeat(means, counts, axis=0)
        return centred


class Fit(NamedTuple):
    """Weights whose logarithms moved from the prior's, under one so wide."""

    moved: Array
    overlap: float
    width: float

    def costs(self, prior: Weights) -> Weights:
        """The costs."""
        cycles = np.array(prior.cycles) * np.exp(self.moved)
        return Weights(tuple(cycles.tolist()), self.overlap)


def calibrate(model: Model, searches: Sequence[Solved]) -> Weights:
    """The weights that earlier searches on the model's very target speak for.

    Trials on several threads teach nothing: no weight of the model stands for the time that
    threads wait for each other.
    """
    target = model.space.target
    if target.threads > 1:
        return model.weights
    here = target.canonical
    searched = [_timed(target, solved) for solved in searches if solved.target == here]
    known = [(rows, times) for rows, times in searched if len(times) >= LEAST]
    return fitted(_together(known, model.weights)) if known else model.weights


def fitted(known: Trials) -> Weights:
    """The likeliest costs by the trials of searches, or the shipped ones if they do as well."""
    found: list[tuple[float, Fit]] = []
    for overlap in sorted({*OVERLAPS, known.prior.overlap}):
        moved = np.zeros(len(AMOUNTS))
        for width in WIDTHS:
            moved = _moved(known, moved, overlap, width)
            fit = Fit(moved, overlap, width)
            found.append((_evidence(known, fit, ERROR), fit))
    likeliest = max(found, key=lambda pair: pair[0])[1]
    gain = _gain(known, likeliest) - log(len(found))
    return likeliest.costs(known.prior) if gain > STRONG else known.prior


def _timed(target: Target, solved: Solved) -> tuple[Array, Array]:
    """The amounts and times of a search's trials, as far as its points are still points."""
    former = Space(solved.problem, target)
    told = (*solved.points, *solved.slower)
    stored = [(completed(former.parameters, params), time) for params, time in told]
    # Tiles of single columns are modelled too roughly to tell what anything costs.
    timed = [(p, time) for p, time in stored if former.holds(p) and not tile_shape(p["tile"]).split]
    rows = [list(amounts(former, point).values()) for point, _ in timed]
    return np.array(rows), np.array([time for _, time in timed])


def _together(known: Sequence[tuple[Array, Array]], prior: Weights) -> Trials:
    weights = [1 / (1 + (times / times.min() - 1) / FAST) for _, times in known]
    counts = [len(times) for _, times in known]
    return Trials(
        np.vstack([rows for rows, _ in known]),
        np.log(np.concatenate([times for _, times in known])),
        np.concatenate([one / one.sum() for one in weights]),
        np.cumsum([0, *counts[:-1]]),
        prior,
    )


def _predicted(known: Trials, moved: Array, overlap: float) -> tuple[Array, Array]:
    """Logarithms of the model's times, and how they change with those of the costs."""
    cycles = known.amounts * (np.array(known.prior.cycles) * np.exp(moved))
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
    """Curvature, slope and twice the loss of the likelihood, in units of an error of 1."""
    predicted, changes = _predicted(known, moved, overlap)
    errors, changes = known.centred(known.logs - predicted), known.centred(changes)
    weighted = known.weights[:, None] * changes
    loss = float(known.weights @ errors**2)
    return APART * (weighted.T @ changes), APART * (weighted.T @ errors), APART * loss


def _moved(known: Trials, moved: Array, overlap: float, width: float) -> Array:
    """How far the logarithms of the costs move from those that were shipped."""
    for _ in range(STEPS):
        curvature, slope, _ = _system(known, moved, overlap)
        curvature = curvature / ERROR**2 + np.eye(len(AMOUNTS)) / width**2
        slope = slope / ERROR**2 - moved / width**2
        step = np.clip(np.linalg.solve(curvature, slope), -STEP, STEP)
        moved = np.clip(moved + step, -FARTHEST, FARTHEST)
        if np.abs(step).max() < SETTLED:
            break
    return moved


def _evidence(known: Trials, fit: Fit, error: float) -> float:
    """Logarithm of how likely the trials are with that prior and error, by Laplace's method."""
    curvature, _, loss = _system(known, fit.moved, fit.overlap)
    curvature = curvature / error**2 + np.eye(len(AMOUNTS)) / fit.width**2
    logdet = float(np.linalg.slogdet(curvature)[1])
    misfit = loss / error**2 + float(fit.moved @ fit.moved) / fit.width**2
    return -0.5 * (misfit + logdet) - len(AMOUNTS) * log(fit.width)


def _gain(known: Trials, fit: Fit) -> float:
    """How much likelier the trials are than with the shipped costs, as a logarithm.

    By the error that the better fit leaves, where that is more than the usual: what neither
    explains is no evidence.
    """
    *_, left = _system(known, fit.moved, fit.overlap)
    *_, loss = _system(known, np.zeros(len(AMOUNTS)), known.prior.overlap)
    error = max(ERROR, sqrt(left / (APART * len(known.firsts))))
    return _evidence(known, fit, error) + 0.5 * loss / error**2
