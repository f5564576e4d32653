"""Tune a range of sizes: time the finalists of its samples at every sample, and choose variants."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from tilewise.kernels.native.range_plan import RangePlan, served_sizes
from tilewise.kernels.problem import Problem, ProblemRange, Size
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target.model import Target
from tilewise.search.errors import RangeError
from tilewise.search.model.prior import direct_schedules
from tilewise.search.progress import OnPhase, SearchPhase
from tilewise.search.ranges.choice import MOST_VARIANTS, RangeCandidate, choose
from tilewise.search.ranges.result import RangeResult, SampleTimes
from tilewise.search.ranges.timing import times_us
from tilewise.search.records import TuneRequest
from tilewise.search.runner.runner import RunnerFactory, local_runner

SPARE = 16
"""Schedules of the model that are looked at where the finalists leave sizes out."""

ADVICE = {"m": "leave transpose_a out", "n": "give transpose_b", "k": "give transpose_a"}
"""How rows of operands do not have the length of a dim."""

log = logging.getLogger(__name__)

Finalists = Mapping[Size, Sequence[Schedule]]
"""The fastest schedules of each sampled size, the fastest first."""


def tune_range(
    problems: ProblemRange,
    target: Target,
    request: TuneRequest,
    finalists: Finalists,
    *,
    seconds: float | None = None,
    should_stop: Callable[[], bool] | None = None,
    on_phase: OnPhase | None = None,
    make_runner: RunnerFactory = local_runner,
) -> RangeResult:
    """Return the variants that serve `problems` with the least loss, chosen among `finalists`.

    Each finalist is timed at every sample that its code serves. One that fails or computes wrong
    results at a sample serves no size. `seconds` limits the timed rounds of all samples together.

    Raises RangeError if nothing serves a size or `should_stop` ends it, RunnerError if no child
    process starts.
    """
    schedules = {one for some in finalists.values() for one in some}
    ordered = sorted(schedules, key=lambda one: one.hash)
    candidates = _candidates(problems, target, ordered, should_stop)
    candidates |= _spare(problems, target, candidates.values())
    each_s = None if seconds is None else seconds / len(finalists)

    def drop(size: Size, schedule: Schedule, why: str) -> None:
        log.warning("%s: schedule %s: %s", problems.at(size), schedule.hash, why)
        del candidates[schedule]

    for done, size in enumerate(sorted(finalists)):
        _check_wanted(problems, should_stop)
        if on_phase:
            on_phase(SearchPhase("variants", done, len(finalists)))
        serving = [schedule for schedule, one in candidates.items() if size in one.served]
        with make_runner(problems.at(size), target.canonical, request) as runner:
            timed = times_us(runner, serving, target, each_s, partial(drop, size))
        for schedule in candidates.keys() & timed.keys():
            candidates[schedule].times_us[size] = timed[schedule]
    return _result(problems, [one for one in candidates.values() if one.times_us])


def _check_wanted(problems: ProblemRange, should_stop: Callable[[], bool] | None) -> None:
    """Raise RangeError once `should_stop` ends the tuning."""
    if should_stop and should_stop():
        raise RangeError(f"{problems}: stopped before every sample was timed")


def check_served(problems: ProblemRange, target: Target) -> None:
    """Raise RangeError where no code that the model proposes serves two neighbours of a long dim.

    A tuning would search all samples first, to find no variants for the sizes between them.
    """
    largest = problems.sizes[-1]
    proposed = direct_schedules(problems.at(largest), target, SPARE)
    for at, (dim, values) in enumerate(zip(problems.dims, problems.ranges, strict=True)):
        pair = [(*largest[:at], value, *largest[at + 1 :]) for value in values[-2:]]
        served = (served_sizes(problems, one, target, pair) for one in proposed)
        if len(values) > MOST_VARIANTS and all(len(sizes) < 2 for sizes in served):
            raise RangeError(
                f"{problems}: no code serves two sizes of {dim}, which is the length of rows "
                f"that are read in place; {ADVICE.get(dim, 'transpose')}, or tune single sizes"
            )


def _spare(
    problems: ProblemRange, target: Target, known: Iterable[RangeCandidate]
) -> dict[Schedule, RangeCandidate]:
    """Return the model's schedules for sizes that finalists leave out.

    Code has one number of parts, and a single row may have only one part. None of the model's
    schedules are needed if those of one number of parts serve every size.
    """
    missing = {1: set(problems.sizes)}
    for one in known:
        missing[one.parts] = missing.get(one.parts, set(problems.sizes)) - one.served
    if not all(missing.values()):
        return {}
    spare: dict[Schedule, RangeCandidate] = {}
    for parts, left in missing.items():
        ends = problems.at(max(left)), problems.at(min(left))
        proposed = [one for end in ends for one in direct_schedules(end, target, SPARE)]
        made = _candidates(problems, target, proposed).values()
        for one in sorted(made, key=lambda one: len(one.served), reverse=True):
            if one.served & left and one.parts == parts:
                spare[one.schedule] = one
                left.difference_update(one.served)
    return spare


def _candidates(
    problems: ProblemRange,
    target: Target,
    schedules: Iterable[Schedule],
    should_stop: Callable[[], bool] | None = None,
) -> dict[Schedule, RangeCandidate]:
    """Return the schedules whose code serves sizes, without times."""
    found: dict[Schedule, RangeCandidate] = {}
    for schedule in schedules:
        _check_wanted(problems, should_stop)
        if served := served_sizes(problems, schedule, target):
            first, packed = problems.at(served[0]), None
            if first.has_constant_weights:
                ends = served[0], served[-1]
                packed = RangePlan.of(problems, schedule, ends, target).packed_format
            tile = tile_along(first, schedule, problems.dims)
            parts = len(loop_nest(first, schedule).parts)
            found[schedule] = RangeCandidate(
                schedule, frozenset(served), tile, {}, packed_format=packed, parts=parts
            )
    return found


def tile_along(problem: Problem, schedule: Schedule, dims: Sequence[str]) -> Size:
    """Return how many neighbouring values of each key take the same number of register tiles.

    Strassen's tiles are of blocks, in each of which the key has a part of its extent.
    """
    nest = loop_nest(problem, schedule)
    tile = nest.compute.tile
    assert tile is not None, "a complete nest has a register tile"
    sides = {nest.row: (nest.row, tile.rows), nest.col: (nest.col, tile.cols)}
    sides.setdefault("m", (nest.row, tile.rows))

    def along(dim: str) -> int:
        if dim not in sides:
            return 1
        name, size = sides[dim]
        return size * -(-int(getattr(problem, dim)) // nest.extents[name])

    return tuple(map(along, dims))


def _result(problems: ProblemRange, candidates: Sequence[RangeCandidate]) -> RangeResult:
    """Return the chosen variants with their times and the fastest of each sample."""
    chosen = choose(problems, candidates)
    known = {one.schedule: one for one in candidates}
    variants = [known[schedule] for schedule in chosen.variants]
    samples = []
    for size in sorted({size for one in candidates for size in one.times_us}):
        timed = [one for one in candidates if size in one.times_us]
        best = min(timed, key=lambda one: one.times_us[size])
        times = tuple(one.times_us.get(size) for one in variants)
        samples.append(SampleTimes(size, best.schedule.hash, best.times_us[size], times))
    return RangeResult(
        chosen,
        tuple(one.tile for one in variants),
        tuple(samples),
        len({one.packed_format for one in variants}),
    )
