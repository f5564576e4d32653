"""What a request to a child may take: seconds, bytes, threads."""

from dataclasses import dataclass

from tilewise.kernels.footprint import working_bytes
from tilewise.kernels.problem import Problem
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.target import parse_target

SLOWEST_FLOPS = 2e9  # a candidate slower than this is as good as hung
BASE_LIMIT_S = 20.0
SETUP_LIMIT_S = 120.0
BASE_MEMORY = 1 << 30
PEER_LIMIT_S = 240.0  # to load a library, compile for it, and check each of its ways
PARK_EARLY = {
    "OPENBLAS_THREAD_TIMEOUT": "20",  # log2 of cycles of the processor's counter; by itself 28
    "GOMP_SPINCOUNT": "20000",  # by itself 300000
}
"""Idle threads of the peers park within a millisecond, and not while calls follow at once."""


@dataclass(frozen=True)
class Limits:
    """Seconds and bytes that one request may take."""

    trial_s: float
    setup_s: float
    memory_bytes: int

    @classmethod
    def for_problem(cls, problem: Problem, measuring_bytes: int = 0) -> "Limits":
        """Generous for a sane candidate of `problem`, final for any other.

        Args:
            problem: what candidates compute.
            measuring_bytes: that the measurement itself takes.
        """
        work_s = problem.flops / SLOWEST_FLOPS
        return cls(
            trial_s=BASE_LIMIT_S + 10 * work_s,
            setup_s=SETUP_LIMIT_S + 10 * work_s,
            memory_bytes=BASE_MEMORY + 2 * working_bytes(problem) + measuring_bytes,
        )


def thread_limits(target: str) -> dict[str, str]:
    """The environment that holds libraries to the threads of a canonical target."""
    threads = parse_target(target).threads
    if threads == 1:
        return ONE_THREAD
    return dict.fromkeys(ONE_THREAD, str(threads)) | PARK_EARLY
