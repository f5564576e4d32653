"""Runs of several timed in turn, so that a drift of the machine meets them alike."""

import time
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewise.search.timing.cold import ColdMode
from tilewise.search.timing.measure import DECIDE_AFTER
from tilewise.search.timing.samples import Run, Samples, leading_runs, settle, started


def interleave(
    runs: Sequence[Run],
    rounds: int,
    threads: int = 1,
    cold: "ColdMode | None" = None,
    until: float | None = None,
) -> list[Samples]:
    """Time all runs in turn, `rounds` times, so that a drift of the machine meets them alike.

    Args:
        runs: the contenders.
        rounds: samples of each.
        threads: how many each of them uses.
        cold: how the caches are emptied before each sample; None measures hot.
        until: the moment of `time.monotonic` after which no further round begins; two are
            timed anyway.
    """
    all_samples = [_start_in_turn(run, threads, cold) for run in runs]
    order = list(range(len(runs)))
    for index in range(rounds):
        if until is not None and index >= DECIDE_AFTER and time.monotonic() > until:
            break
        if index and index % 2 == 0:  # nobody always comes after the same
            Random(index).shuffle(order)
        for i in order if index % 2 == 0 else reversed(order):
            settle(threads)
            if all_samples[i].lead:
                runs[i](all_samples[i].lead)
            all_samples[i].take(runs[i], index)
    return all_samples


def _start_in_turn(run: Run, threads: int, cold: "ColdMode | None") -> Samples:
    """Samples to be interleaved with others': each comes after untimed runs of its own.

    On several threads that is to wake them. Cold ones find nothing that a run has left.
    """
    samples, run_s = started(run, threads, cold)
    if threads > 1:
        samples.lead = 1
    elif cold is None:
        samples.lead = leading_runs(run_s)
    return samples
