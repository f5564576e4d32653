"""The register step of a schedule, by which fake runs tell schedules apart."""

from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import detect


def register_of(schedule: Schedule) -> Register:
    """The register step; StopIteration where there is none."""
    return next(step for step in schedule.steps if isinstance(step, Register))


def steps(rows: int) -> list[object]:
    """Those of a schedule that packs B, in tiles of these rows and one vector."""
    return list(Schedule((Pack("B"), Register(rows, detect().lanes("f32")))).to_json())
