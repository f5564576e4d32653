"""Which of the stored schedules of a problem a plan is chosen from."""

from collections.abc import Iterable

from tilewise.search.networks.costs import Timed


def fastest_of_each(best: Timed, others: Iterable[Timed], most: int) -> tuple[Timed, ...]:
    """The stored best, and of each algorithm the fastest others.

    Args:
        best: what the store gives for the problem; it is taken whatever others take.
        others: the fastest first; a schedule that comes again is passed over.
        most: schedules of one algorithm.

    Returns:
        The fastest first.
    """
    found = {best.algorithm: {best.hash: best}}
    for timed in others:
        alike = found.setdefault(timed.algorithm, {})
        if len(alike) < most:
            alike.setdefault(timed.hash, timed)
    every = (one for alike in found.values() for one in alike.values())
    return tuple(sorted(every, key=lambda one: one.time_us))
