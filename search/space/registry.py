"""Parameters that extensions add to spaces, and the schedules of their values.

A schedule is first made of the parameters of Tilewise. Then each added parameter changes it, in
the order of registration.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.schedule import Schedule, check_legal
from tilewise.search.errors import SearchError
from tilewise.search.space.parameters import Parameter
from tilewise.search.space.points import Point, Value
from tilewise.search.space.workload import Workload

Values = Callable[[Workload], Parameter | None]
"""Gives the parameter for a workload; None where the workload has none."""

Change = Callable[[Workload, Schedule, Value], Schedule]
"""Gives the schedule that a value makes of another."""


_added: dict[str, tuple[Values, Change]] = {}


def register_parameter(name: str, values: Values, change: Change) -> None:
    """Add a parameter to the spaces of all searches.

    `values` gives the parameter of that name for a workload, if any; a stored point without it has
    the first value. `change` gives what a value makes of a schedule; where that is not legal for
    the problem, the value has no effect.

    Raises ValueError if a parameter is registered by that name.
    """
    if name in _added:
        raise ValueError(f"parameter {name!r} is registered; give another name")
    _added[name] = values, change


@contextmanager
def registered(name: str, values: Values, change: Change) -> Iterator[None]:
    """Add a parameter for the duration of a `with` block."""
    register_parameter(name, values, change)
    try:
        yield
    finally:
        del _added[name]


def added_parameters(workload: Workload, own: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Return the parameters that were added to a workload's own.

    Raises SearchError if one has another name than it was registered by, or that of an own one.
    """
    taken = {parameter.name for parameter in own}
    found = []
    for name, (values, _) in _added.items():
        parameter = values(workload)
        if parameter is None:
            continue
        if name in taken or parameter.name != name:
            raise SearchError(
                f"parameter {parameter.name!r} is registered as {name!r}, and the space has "
                f"{', '.join(sorted(taken))}; give it one name that is free"
            )
        found.append(parameter)
    return tuple(found)


def changed(workload: Workload, point: Point, schedule: Schedule) -> Schedule:
    """Return what the added parameters of a point make of a schedule."""
    for name, (_, change) in _added.items():
        if name in point:
            other = change(workload, schedule, point[name])
            with suppress(ScheduleError):
                check_legal(workload.problem, other)
                schedule = other
    return schedule
