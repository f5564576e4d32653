"""One trial: compile, check, and time a schedule in the rounds of a control."""

import time
from math import inf
from typing import Any

from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.protocol import Message, TrialReply
from tilewise.search.timing.cold import evicting_s
from tilewise.search.timing.measure import LEAST_SAMPLES, measure
from tilewise.search.timing.samples import LONG_RUN_S, SAMPLE_S, VERY_LONG_RUN_S, Samples, start
from tilewise.search.timing.speed_factor import (
    Bounds,
    Control,
    ControlledTiming,
    measure_with_control,
)

TRIAL_BUDGET_S = 0.08
CLEARLY_SLOWER = 1.25
BEHIND = 1.05  # times the best: more than noise, so that the final benchmark will not have it
FIRST_RUN = 1.8  # times that limit already in the run that is checked


def trial(
    session: Session, steps: Any, best_s: float | None, control: Message | None = None
) -> TrialReply:
    """Compile, check and time one schedule; the check is its warm-up.

    `best_s` is the best so far at speed factor 1. `control` has `steps` and `seconds` at factor 1.
    """
    begin = time.perf_counter()
    known = _control(session, control)
    call = session.call(steps)
    compiled = time.perf_counter()
    first = Samples(1, session.target.threads)

    def sampled(_repeat: int) -> None:
        first.take(call)

    error = session.check(sampled, steps)
    accuracy = session.accuracy(steps)
    limits = Bounds(best_s * CLEARLY_SLOWER, best_s * BEHIND) if best_s else None
    timed = _timed(session, steps, call, first, limits, known)
    if timed.speed_factor:
        session.speed_factor = timed.speed_factor  # until a control says otherwise
    return TrialReply(
        times=tuple(timed.samples.times),
        speed_factor=timed.speed_factor,
        takes_over=timed.takes_over,
        rejected=timed.samples.preempted,
        pruned=timed.stopped,
        compile_s=compiled - begin,
        measure_s=time.perf_counter() - compiled,
        max_error=error,
        accuracy=accuracy,
    )


def _timed(
    session: Session,
    steps: Any,
    call: Any,
    first: Samples,
    limits: Bounds | None,
    control: Control | None,
) -> ControlledTiming:
    """Return the samples of a correct candidate after its check."""
    threads = session.target.threads
    cold = session.how_cold(call)
    is_long = threads == 1 and cold is None and first.least_s >= LONG_RUN_S
    factor = session.speed_factor or (1.0 if control is None else inf)
    slowest_s = FIRST_RUN * limits.stop_above_s * factor if limits else inf
    if is_long and first.least_s > slowest_s:
        # Touching its memory for the first time does not double a run this long.
        only = Samples(1, times=[first.least_s], preempted=first.preempted)
        return ControlledTiming(only, True, factor if control else None)
    run = session.on_copies(steps, call)
    samples = Samples(1) if is_long else start(run, threads, cold)
    if is_long and first.least_s >= VERY_LONG_RUN_S:
        samples = first  # the median is of the others, if this one met new memory
    if control is not None and limits is not None:
        return measure_with_control(control, run, samples, limits, TRIAL_BUDGET_S)
    budget_s = TRIAL_BUDGET_S + LEAST_SAMPLES * (evicting_s(session.target) if cold else 0.0)
    stop_above_s, behind_s = (limits.stop_above_s, limits.behind_s) if limits else (None, None)
    samples, stopped = measure(run, budget_s, stop_above_s, threads, samples, behind_s)
    return ControlledTiming(samples, stopped, None)


def _control(session: Session, wanted: Message | None) -> Control | None:
    """Return the requested control, bound and warmed up.

    None for several threads, cold caches, or if it cannot run, which is not the candidate's fault.
    """
    if wanted is None or session.target.threads > 1 or session.cache != "hot":
        return None
    if session.control is None or session.control[0] != wanted:
        repeat = max(1, round(SAMPLE_S / wanted["seconds"]))
        try:
            call = session.call(wanted["steps"])
        except (LoweringError, ScheduleError, MemoryError):
            return None
        call(1)
        session.control = wanted, Control(call, wanted["seconds"], repeat)
    return session.control[1]
