"""What a runner's child holds for one problem, and how it times candidates on it."""

import gc
import time
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np

from kernels.native import lower
from kernels.native.executable import Call, Executable
from kernels.problem import parse_problem
from kernels.problem.iteration import is_packed_ahead
from kernels.reference import (
    Operands,
    compare,
    empty_aligned,
    make_operands,
    poison,
    reference,
)
from kernels.schedule import Schedule
from kernels.target import resolve
from kernels.target.microbench import peak_gflops
from search.answers import FailureError
from search.cold import MOST_COPIED_BYTES, ColdMode, cold_mode, in_turn
from search.compiler import compiled
from search.measure import (
    LONG_RUN_S,
    VERY_LONG_RUN_S,
    Run,
    Samples,
    interleave,
    measure,
    sample_cost,
    start,
)
from search.peers import available_peers
from search.peers.screen import Bench, Timed, screen
from search.peers.variant import PeerAbsentError, Variant, why_wrong
from search.protocol import Message

TRIAL_BUDGET_S = 0.08
CLEARLY_SLOWER = 1.25
BEHIND = 1.05  # times the best: more than noise, so that the finals will not have it
FIRST_RUN = 1.8  # times that limit already in the run that is checked
LEAST_BENCH_ROUNDS, MOST_BENCH_ROUNDS = 7, 25


@dataclass
class Place:
    """Where one set of buffers lies: operands, and panels that several schedules share."""

    operands: Operands
    arena: dict[str, Any] = field(default_factory=dict)


class Session:
    """One problem's operands, reference and scratch, made once and used by every trial."""

    def __init__(self, problem: str, target: str, seed: int, cache: str = "hot") -> None:
        self.problem = parse_problem(problem)
        self.target = resolve(target)
        self.operands = make_operands(self.problem, seed)
        self.initial = self.operands["C"].copy()
        self.expected = reference(self.problem, self.operands)
        self.places = [Place(self.operands)]
        self.cache = cache
        self.cold: ColdMode | None = None
        self.screened: dict[str, list[Timed]] = {}
        gc.collect()
        gc.freeze()  # what was imported stays, and need not be looked at again

    def call(self, steps: Any) -> Call:
        """Compile a schedule and bind it to the operands and the arena."""
        schedule = Schedule.from_json(steps)
        return self._bind(lower(self.problem, schedule, self.target), self.places[0])

    def compile(self, steps: Any) -> Message:
        """Compile a schedule for its trial; the seconds that it took."""
        return compiled(self.problem, steps, self.target)

    def _bind(self, executable: Executable, place: Place) -> Call:
        """Bind to the buffers of a place.

        Constant weights are packed at binding and stay, so their panels are not shared.
        """
        for name, size in executable.scratch_bytes.items():
            held = place.arena.get(name)
            own = is_packed_ahead(self.problem, name)
            if held is None or held.size < size or own:
                place.arena[name] = empty_aligned((size,), np.uint8)
        return executable.bind(place.operands, place.arena)

    def _new_place(self) -> Place:
        """Copies of the operands in memory of their own; panels alone where they are large."""
        if sum(array.nbytes for array in self.operands.values()) > MOST_COPIED_BYTES:
            return Place(self.operands)
        copies = {}
        for name, array in self.operands.items():
            copies[name] = empty_aligned(array.shape, array.dtype.type)
            copies[name][...] = array
        return Place(copies)

    def _cold(self, run_s: float) -> ColdMode | None:
        """The cold mode for this problem, decided by its first candidate; None measures hot."""
        if self.cache == "hot":
            return None
        if self.cold is None:
            caches = max(self.target.l2_bytes, self.target.l3_bytes)
            size = sum(array.nbytes for array in self.operands.values())
            self.cold = cold_mode(run_s, size, caches)
            self.places += [self._new_place() for _ in range(self.cold.copies - 1)]
        return self.cold

    def _in_turn(self, steps: Any, first: Run) -> Run:
        """The call on every copy of the operands that the cold mode has."""
        if len(self.places) == 1:
            return first
        executable = lower(self.problem, Schedule.from_json(steps), self.target)
        return in_turn([first, *(self._bind(executable, place) for place in self.places[1:])])

    def check(self, run: Run) -> tuple[float, float]:
        """Run once on poisoned (or initial) C and compare; FailureError when it is wrong."""
        result = self.operands["C"]
        if getattr(self.problem, "init", "zero") == "accumulate":
            result[...] = self.initial
        else:
            poison(result)
        run(1)
        error, tolerance = compare(self.problem, result, self.expected)
        if not error <= tolerance:
            raise FailureError("wrong", f"largest deviation {error:.3g}, tolerance {tolerance:.3g}")
        return error, tolerance

    def trial(self, steps: Any, best_s: float | None) -> Message:
        """Compile, check and time one schedule; the check is its warm-up."""
        begin = time.perf_counter()
        call = self.call(steps)
        compiled = time.perf_counter()
        threads = self.target.threads
        first = Samples(1, threads)

        def sampled(_repeat: int) -> None:
            first.take(call)

        error, tolerance = self.check(sampled)
        limit = best_s * CLEARLY_SLOWER if best_s else None
        cold = self._cold(first.least_s)
        is_long = threads == 1 and cold is None and first.least_s >= LONG_RUN_S
        if is_long and limit and first.least_s > FIRST_RUN * limit:
            # Touching its memory for the first time does not double a run this long.
            samples, stopped = Samples(1, times=[first.least_s], rejected=first.rejected), True
        else:
            run = self._in_turn(steps, call)
            samples = Samples(1) if is_long else start(run, threads, cold)
            if is_long and first.least_s >= VERY_LONG_RUN_S:
                samples = first  # the median is of the others, if this one met new memory
            behind = best_s * BEHIND if best_s else None
            samples, stopped = measure(run, TRIAL_BUDGET_S, limit, threads, samples, behind)
        return {
            "times": samples.times,
            "rejected": samples.rejected,
            "pruned": stopped,
            "compile_s": compiled - begin,
            "measure_s": time.perf_counter() - compiled,
            "max_error": error,
            "tolerance": tolerance,
        }

    def finals(
        self,
        schedules: list[Any],
        rounds: int,
        with_peers: bool,
        placements: int = 1,
        budget_s: float | None = None,
    ) -> Message:
        """Time the finalists again, and the peers with them, in interleaved rounds.

        The rounds are spread over several placements of the buffers, the first of which is
        that of the trials. Of the peers' ways the fastest stands for each.
        """
        begin = time.monotonic()
        runs = [self.call(steps) for steps in schedules]
        for index, run in enumerate(runs):
            try:
                self.check(run)
            except FailureError as failure:
                failure.index = index
                raise
        scratch = [run.scratch_bytes for run in runs]
        executables = [lower(self.problem, Schedule.from_json(s), self.target) for s in schedules]
        peers = self._right_peers() if with_peers else []
        dtype = self.problem.element.name
        before_peak = time.monotonic()
        peak = peak_gflops(self.target, dtype)
        peak_s = time.monotonic() - before_peak  # which it takes after the rounds again
        cold = self._cold(self._seconds_of(runs[0]))
        times: list[list[list[float]]] = [[] for _ in schedules]
        rounds_of: list[list[list[int]]] = [[] for _ in schedules]
        of_peers: list[list[float]] = [[] for _ in peers]
        rejected = 0
        for placement in range(placements):
            until = None
            if budget_s is not None:
                until = begin + (budget_s - peak_s) * (placement + 1) / placements
                if placement and time.monotonic() > until:
                    break
            contenders = [*self._placed(executables, placement), *self._placed_peers(peers)]
            timed = interleave(contenders, rounds, self.target.threads, cold, until)
            for own, in_rounds, samples in zip(times, rounds_of, timed, strict=False):
                own.append(samples.times)
                in_rounds.append(samples.rounds)
            for theirs, samples in zip(of_peers, timed[len(times) :], strict=True):
                theirs.extend(samples.times)
            rejected += sum(samples.rejected for samples in timed[: len(times)])
            contenders.clear()  # their buffers go before those of the next placement come
        return {
            "times": times,
            "rounds": rounds_of,
            "rejected": rejected,
            "peers": _best_ways(peers, of_peers),
            "peak_gflops": max(peak, peak_gflops(self.target, dtype)),
            "scratch_bytes": scratch,
            "cold": None if cold is None else cold.description,
        }

    @staticmethod
    def _seconds_of(run: Run) -> float:
        begin = time.perf_counter()
        run(1)
        return time.perf_counter() - begin

    def _placed(self, executables: list[Executable], placement: int) -> list[Run]:
        """The finalists on buffers of a placement, on every copy that the cold mode wants."""
        copies = max(1, len(self.places))
        places = self.places if placement == 0 else [self._new_place() for _ in range(copies)]
        return [
            in_turn([self._bind(executable, place) for place in places])
            for executable in executables
        ]

    def _placed_peers(self, peers: list[Variant]) -> list[Run]:
        """The peers' ways, on every copy that the cold mode wants."""
        if len(self.places) == 1:
            return [way.run for way in peers]
        threads = self.target.threads
        others = [
            {(w.peer, w.name): w for w in available_peers(self.problem, place.operands, threads)}
            for place in self.places[1:]
        ]
        return [
            in_turn([way.run, *(other[way.peer, way.name].run for other in others)])
            for way in peers
        ]

    def _right_peers(self) -> list[Variant]:
        """The peers' ways whose results are right."""
        given = (self.problem, self.operands, self.expected, self.initial)
        ways = available_peers(self.problem, self.operands, self.target.threads)
        return [way for way in ways if why_wrong(way, *given) is None]

    def peer(self, name: str) -> Message:
        """Prepare and check a peer for `beside`; why it is absent, if it is."""
        bench = Bench(self.problem, self.operands, self.expected, self.initial, self.target.threads)
        try:
            self.screened[name] = screen(name, bench)
        except PeerAbsentError as error:
            self.screened[name] = []
            return {"absent": str(error)}
        return {"ways": [way.variant.name for way in self.screened[name]]}

    def beside(self, steps: Any, peers: list[str], budget_s: float) -> Message:
        """Time one schedule and every way of the peers in interleaved rounds."""
        absent = {}
        for name in peers:
            if name not in self.screened and "absent" in (reply := self.peer(name)):
                absent[name] = reply["absent"]
        ways = [way for name in peers for way in self.screened[name]]
        call = self.call(steps)
        self.check(call)

        def ours(repeat: int) -> None:
            for _ in range(repeat):  # entered from Python each time, as every peer is
                call(1)

        begin = time.perf_counter()
        ours(1)
        spent = [time.perf_counter() - begin, *(way.seconds for way in ways)]
        threads = self.target.threads
        fitting = int(budget_s / sum(sample_cost(seconds, threads) for seconds in spent))
        rounds = max(LEAST_BENCH_ROUNDS, min(MOST_BENCH_ROUNDS, fitting))
        (own, *theirs), peak = self._with_peak([ours, *(way.variant.run for way in ways)], rounds)
        return {
            "times": own.times,
            "ways": [
                {
                    "peer": way.variant.peer,
                    "variant": way.variant.name,
                    "output": way.variant.output,
                    "times": samples.times,
                }
                for way, samples in zip(ways, theirs, strict=True)
            ],
            "absent": absent,
            "peak_gflops": peak,
        }

    def _with_peak(self, runs: list[Run], rounds: int) -> tuple[list[Samples], float]:
        """Interleaved rounds, and the multiply-add peak around them in GFLOP/s.

        The peak is the best of before and after: a bound has to lie above what it bounds, and
        its median in the same rounds does not (kernels reached 104 to 110% of it here).
        """
        dtype = self.problem.element.name
        before = peak_gflops(self.target, dtype)
        timed = interleave(runs, rounds, self.target.threads)
        return timed, max(before, peak_gflops(self.target, dtype))


def _best_ways(ways: list[Variant], times: list[list[float]]) -> dict[str, list[float]]:
    """For each peer the times of its fastest way."""
    best: dict[str, list[float]] = {}
    for way, taken in zip(ways, times, strict=True):
        if way.peer not in best or median(taken) < median(best[way.peer]):
            best[way.peer] = taken
    return best
