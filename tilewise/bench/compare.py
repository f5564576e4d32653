"""Time our schedule and every peer in the same rounds of one child process."""

from dataclasses import replace
from typing import Any

from tilewise.bench.report import Compared, PeerSpeed
from tilewise.bench.suite import SuiteEntry
from tilewise.kernels.problem import Problem
from tilewise.kernels.target import resolve
from tilewise.search.errors import RunnerError
from tilewise.search.records import CacheMode, Measurement
from tilewise.search.runner.protocol import CandidateFailureError, RoundsReply
from tilewise.search.runner.runner import LIBRARIES_BYTES, Runner, RunnerLimits
from tilewise.search.timing.cold import added_bytes
from tilewise.search.timing.samples import summarise

BUDGET_S = 2.0


def bench_runner(problem: Problem, target: str, cache: CacheMode = "hot") -> Runner:
    """Return a child process with enough memory for the peers."""
    limits = RunnerLimits.with_libraries(problem)
    if cache == "cold":  # peers hold copies too
        added = added_bytes(resolve(target)) + LIBRARIES_BYTES
        limits = replace(limits, memory_bytes=limits.memory_bytes + added)
    return Runner(problem, target, limits=limits, cache=cache)


def compare(
    runner: Runner,
    entry: SuiteEntry,
    schedule: tuple[str, list[Any]],
    peers: tuple[str, ...],
    budget_s: float = BUDGET_S,
) -> Compared:
    """Measure our schedule, as hash and steps, and each peer that supports the problem.

    A peer that crashes, hangs or is wrong is absent with that reason. `budget_s` bounds the rounds
    roughly; slow runs take longer.
    """
    name, steps = schedule
    absent: dict[str, str] = {}
    try:
        for peer in peers:
            absent |= _prepare(runner, peer, steps)
        present = [peer for peer in peers if peer not in absent]
        reply = runner.time_with_peers(steps, present, budget_s)
    except (CandidateFailureError, RunnerError) as failure:
        return Compared(entry, None, f"not measured: {failure}", name, absent=absent)
    return _compared(entry, name, reply, absent)


def _prepare(runner: Runner, peer: str, steps: list[Any]) -> dict[str, str]:
    """Return why a peer is absent, by its name; empty if it is ready."""
    try:
        reason = runner.peer(peer, steps).absent
    except CandidateFailureError as failure:
        reason = f"{failure.kind}: {failure}"
    return {peer: reason} if reason else {}


def _compared(
    entry: SuiteEntry, schedule: str, reply: RoundsReply, absent: dict[str, str]
) -> Compared:
    flops = entry.problem.flops
    peers: dict[str, PeerSpeed] = {}
    for way in reply.ways:
        speed = PeerSpeed(summarise(way.times, flops), way.variant, way.output)
        best = peers.get(way.peer)
        if best is None or speed.measurement.gflops > best.measurement.gflops:
            peers[way.peer] = speed
    ours: Measurement = summarise(reply.times, flops)
    return Compared(
        entry,
        ours,
        schedule=schedule,
        peers=peers,
        absent=absent | reply.absent,
        peak_gflops=reply.peak_gflops,
    )
