"""What a job asks for, and which schedules and speeds are possible for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from statistics import median

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, Configuration
from tilewise.kernels.mlir.tuning_spec.form import form_of
from tilewise.kernels.mlir.tuning_spec.text import check_levels
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target import TargetName, parse_target
from tilewise.kernels.target.cores import ceiling_gflops, tile_ceiling_gflops
from tilewise.service.db import models
from tilewise.service.errors import RefusedError
from tilewise.service.runs.wire.base import MeasurementWire

Fault = tuple[str, str]
"""A field of a message, and what is wrong with its value."""

MARGIN = 1.2
PACES = 4.0
"""How far a speed that was scaled by the machine's pace may lie above the ceiling."""

SAVED = 4.0
"""Multiplications that other libraries may save: those of Winograd's F(4x4, 3x3)."""

SAME = 0.01
"""By how much a speed may differ from that of its time."""

LONGEST_S = 1e6


@dataclass(frozen=True)
class JobWork:
    """The job of a run, as far as messages are compared with it.

    Attributes:
        problem: what is computed.
        target: where.
        budget: most trials.
        peers: whether other libraries are to be timed.
        toolchain: identity of the compilers and the generator.
    """

    problem: Problem
    target: TargetName
    budget: int
    peers: bool
    toolchain: str

    @classmethod
    def of(cls, job: models.Job) -> "JobWork":
        """Return the work of a job's row."""
        return cls(
            parse_problem(job.problem.canonical),
            parse_target(job.target),
            job.trials,
            job.peers,
            job.toolchain.identity,
        )

    def steps_fault(self, schedule: AnySchedule) -> str | None:
        """Return why a schedule cannot be one of the job's; None if it can."""
        if isinstance(schedule, Configuration) != (self.target.kind == "iree"):
            steps = "level and pipeline" if self.target.kind == "iree" else "of a schedule"
            return f"target {self.target.canonical} takes steps {steps} alone"
        try:
            if isinstance(schedule, Configuration):
                check_levels(form_of(self.problem), schedule)
                return None
            threads = len(loop_nest(self.problem, schedule).parts)
        except KernelsError as error:
            return str(error)
        if threads > self.target.threads:
            return f"the schedule has {threads} threads; the target has {self.target.threads}"
        return None

    def most_gflops(self, schedule: AnySchedule) -> float:
        """Return the speed that no kernel of a legal schedule exceeds.

        Schedules that save multiplications are counted by those that they make.
        """
        saved = 1.0
        if isinstance(schedule, Schedule) and schedule.algorithm:
            made = 2 * prod(loop_nest(self.problem, schedule).extents.values())
            saved = max(1.0, self.problem.flops / made)
        return MARGIN * saved * self.most_peak_gflops

    @property
    def most_peak_gflops(self) -> float:
        """The multiply-add rate that no measured peak exceeds, without the margin."""
        return ceiling_gflops(self.target.cpu, self.problem.element.name, self.target.threads)

    @property
    def most_peer_gflops(self) -> float:
        """The speed that no other library exceeds."""
        ceiling = tile_ceiling_gflops(
            self.target.cpu, self.problem.element.name, self.target.threads
        )
        return MARGIN * SAVED * ceiling

    def speed_faults(self, field: str, speed: MeasurementWire, most: float) -> Iterator[Fault]:
        """Yield what is wrong with a measurement that may be at most so fast."""
        low, high = speed.interval
        if not (speed.gflops > 0 and speed.time_us > 0):
            yield field, "speed and time are above 0"
            return
        if speed.gflops > most:
            yield f"{field}.gflops", self.too_fast(speed.gflops, most)
        if not 0 < low <= high <= PACES * max(most, speed.gflops):
            yield f"{field}.interval", f"[{low:g}, {high:g}] is no interval of a speed"
        elif not (1 - SAME) * low <= speed.gflops <= (1 + SAME) * high:
            yield f"{field}.interval", f"[{low:g}, {high:g}] is not around {speed.gflops:g} GFLOP/s"
        wanted = self.problem.flops / speed.gflops / 1e3
        if not (1 - SAME) * wanted <= speed.time_us <= (1 + SAME) * wanted:
            yield (
                f"{field}.time_us",
                f"{speed.time_us:g} us are not {speed.gflops:g} GFLOP/s, which take {wanted:g} us",
            )

    def sample_faults(
        self, field: str, samples: Sequence[float], schedule: AnySchedule
    ) -> Iterator[Fault]:
        """Yield what is wrong with the wall times of a schedule."""
        if not samples:
            return
        if not all(0 < taken <= LONGEST_S for taken in samples):
            yield field, f"times are above 0 and at most {LONGEST_S:g} s"
            return
        speed, most = self.problem.flops / median(samples) / 1e9, self.most_gflops(schedule)
        if speed > most:
            yield field, self.too_fast(speed, most)

    def too_fast(self, gflops: float, most: float) -> str:
        """Return the message about an impossible speed."""
        threads = "1 thread" if self.target.threads == 1 else f"{self.target.threads} threads"
        return (
            f"{gflops:.4g} GFLOP/s is impossible: {threads} of {self.target.cpu} reach at most "
            f"{most:.4g} for {self.problem.element.name}"
        )


def refuse(faults: Iterator[Fault]) -> None:
    """Raise RefusedError if there is any fault."""
    found = tuple(faults)
    if found:
        raise RefusedError(found)
