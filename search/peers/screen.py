"""Which of a peer's ways take part: those that run, are right, and are not clearly slower.

Every way that is left out has a reason, and the reasons of a peer that has none left
become its own.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tilewise.kernels.oracle.operands import Array, Operands
from tilewise.kernels.oracle.reference import Expected
from tilewise.kernels.problem import Problem
from tilewise.search.peers import iree, onednn, openblas
from tilewise.search.peers.variant import PeerAbsentError, ShapeError, Variant, deviation
from tilewise.search.timing.samples import Samples, settle

Maker = Callable[[Problem, Operands, int], list[Variant]]
MAKERS: dict[str, Maker] = {
    "openblas": openblas.variants,
    "onednn": onednn.variants,
    "iree": iree.variants,
}
VERSIONS: dict[str, Callable[[], str]] = {
    "openblas": openblas.version,
    "onednn": onednn.version,
    "iree": iree.version,
    "iree+tilewise": iree.version,
}
CLEARLY_SLOWER = 1.5  # than the peer's fastest way, by the shortest of a few warm runs
WARM_RUNS = 3
SLOW_S = 0.5  # a run this long needs no second one to be judged by


@dataclass(frozen=True)
class Timed:
    """A way that is right.

    Attributes:
        variant: the way.
        seconds: of one run.
        error: the largest deviation of its result.
        tolerance: what is allowed there.
    """

    variant: Variant
    seconds: float
    error: float
    tolerance: float


@dataclass(frozen=True)
class Bench:
    """A problem's operands and what is right for them.

    Attributes:
        problem: what is computed.
        operands: the buffers that ours and every peer read.
        expected: the reference.
        initial: what C holds at first.
        threads: how many every peer uses.
    """

    problem: Problem
    operands: Operands
    expected: Expected
    initial: Array
    threads: int


def screen(name: str, bench: Bench) -> list[Timed]:
    """The ways of peer `name` that are worth timing; as `screened`."""
    return screened(MAKERS[name], bench)


def screened(make: Maker, bench: Bench) -> list[Timed]:
    """The ways of a peer that are worth timing, the fastest first.

    Raises:
        PeerAbsentError: there is none; the message says why.
    """
    right, refused = [], []
    for variant in make(bench.problem, bench.operands, bench.threads):
        try:
            right.append(_checked(variant, bench))
        except PeerAbsentError as error:
            refused.append(f"{variant.name}: {error}")
    if not right:
        raise PeerAbsentError("; ".join(refused) or "it has no way to compute this")
    right.sort(key=lambda timed: timed.seconds)
    return [timed for timed in right if timed.seconds <= CLEARLY_SLOWER * right[0].seconds]


def _checked(variant: Variant, bench: Bench) -> Timed:
    try:
        error, tolerance = deviation(
            variant, bench.problem, bench.operands, bench.expected, bench.initial
        )
    except ShapeError as wrong:
        raise PeerAbsentError(f"wrong: {wrong}") from wrong
    except (RuntimeError, ValueError, TypeError) as failure:
        # torch refuses what it has no kernel for with RuntimeError or a kind of it, IREE's
        # runtime and NumPy with ValueError, and their bindings with TypeError. A fault of our own
        # does not pass for that: where a peer is installed, tests name what it computes.
        raise PeerAbsentError(str(failure).strip().partition("\n")[0]) from failure
    if not error <= tolerance:
        raise PeerAbsentError(
            f"wrong: the largest deviation is {error:.3g}, the tolerance {tolerance:.3g}"
        )
    settle(bench.threads)
    samples = Samples(1, bench.threads)
    while len(samples.times) < WARM_RUNS:
        samples.take(variant.run)
        if samples.least_s > SLOW_S:
            break
    return Timed(variant, samples.least_s, error, tolerance)
