"""The register step of a schedule, by which fake runs tell schedules apart."""

from tilewise.kernels.schedule import Register, Schedule


def register_of(schedule: Schedule) -> Register:
    """The register step; StopIteration where there is none."""
    return next(step for step in schedule.steps if isinstance(step, Register))
