"""Schedules that have scripts, for searches whose own fuse pixels."""

from collections.abc import Iterable
from dataclasses import replace

from tilewise.kernels.problem import Problem
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.model.prior import direct_schedules
from tilewise.search.space.points import Point
from tilewise.search.space.schedules import schedule_of
from tilewise.search.space.space import Space
from tilewise.search.transfer.starting_points import adapt

MOST_ADAPTED = 2


def scripted_schedules(
    problem: Problem, target: Target, found: Iterable[Point], most: int
) -> list[Schedule]:
    """Return up to `most` untimed schedules for lines of pixels, which scripts cannot fuse.

    The first have the tiles and blocks of the first points that a search found. Of ResNet-50, the
    best of them and of the model's took as long as the best that searches of lines had found, the
    best of the model's alone 1.18 times as long (Zen 3).
    """
    lines, pixels = Space(problem, target, has_scripts=True), Space(problem, target)
    points = (adapt(lines, pixels, point) for point in found if pixels.holds(point))
    adapted = [schedule_of(lines.workload, point) for point in points if point is not None]
    legal = [one for one in dict.fromkeys(adapted) if lines.why_illegal(one) is None]
    near = legal[: min(most, MOST_ADAPTED)]
    return [*near, *direct_schedules(problem, target, most - len(near))]


def in_lines(problem: Problem, target: Target, schedule: Schedule) -> Schedule:
    """Return a schedule, or where it fuses pixels the one of lines that the model prefers."""
    nest = loop_nest(problem, schedule)
    if nest.algorithm is not None or nest.problem == problem:
        return schedule
    return direct_schedules(problem, target, 1)[0]


def range_in_lines(whole: RangeSchedule, target: Target) -> RangeSchedule:
    """Return the schedules of a range, those that fuse pixels replaced as `in_lines` does."""
    variants = (
        in_lines(whole.problems_of(variant)[-1], target, schedule)
        for variant, schedule in enumerate(whole.variants)
    )
    return replace(whole, variants=tuple(variants))
