"""Select a peer's ways that run, are correct, and are not clearly slower.

The reasons of a peer without a remaining way become its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.problem import Problem
from tilewise.search.peers import iree, onednn, openblas, weight_only
from tilewise.search.peers.variant import Bench, PeerAbsentError, Variant, checked
from tilewise.search.timing.samples import Samples, settle

Maker = Callable[[Problem, Operands, int], list[Variant]]
MAKERS: dict[str, Maker] = {
    "openblas": openblas.variants,
    "onednn": onednn.variants,
    "iree": iree.variants,
    "onnxruntime": weight_only.onnxruntime_variants,
}
VERSIONS: dict[str, Callable[[], str]] = {
    "openblas": openblas.version,
    "onednn": onednn.version,
    "iree": iree.version,
    "onnxruntime": weight_only.onnxruntime_version,
    "iree+tilewise": iree.version,
}
CLEARLY_SLOWER = 1.5  # than the peer's fastest way, by the shortest of a few warm runs
WARM_RUNS = 3
SLOW_S = 0.5  # a run this long needs no second one to be judged by
VERY_SLOW_S = 2.0  # nor does a check this long, whose first run warms up


@dataclass(frozen=True)
class TimedVariant:
    """A correct way, seconds of one run, and its largest deviation with the tolerance there."""

    variant: Variant
    seconds: float
    error: float
    tolerance: float


def screened(make: Maker, bench: Bench) -> list[TimedVariant]:
    """Return the ways of a peer that are worth timing, fastest first.

    Raises PeerAbsentError with the reasons if there is none.
    """
    right, refused = [], []
    for variant in make(bench.problem, bench.operands, bench.threads):
        try:
            right.append(_timed(variant, bench))
        except PeerAbsentError as error:
            refused.append(f"{variant.name}: {error}")
    if not right:
        raise PeerAbsentError("; ".join(refused) or "it has no way to compute this")
    right.sort(key=lambda timed: timed.seconds)
    return [timed for timed in right if timed.seconds <= CLEARLY_SLOWER * right[0].seconds]


def _timed(variant: Variant, bench: Bench) -> TimedVariant:
    first = Samples(1, bench.threads)
    checked_run = replace(variant, run=lambda _: first.take(variant.run))
    error, tolerance = checked(checked_run, bench)
    if first.least_s > VERY_SLOW_S:
        return TimedVariant(variant, first.least_s, error, tolerance)
    settle(bench.threads)
    samples = Samples(1, bench.threads)
    while len(samples.times) < WARM_RUNS:
        samples.take(variant.run)
        if samples.least_s > SLOW_S:
            break
    return TimedVariant(variant, samples.least_s, error, tolerance)
