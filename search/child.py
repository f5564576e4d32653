"""The child process of a runner: compiles, checks and times candidates on request.

It may hang, crash or be killed at any moment without harm to the search. It dies with
its parent: at the end of its input, and at once through the kernel where Linux runs.
"""

import gc
import os
import sys
import time
from statistics import median
from typing import Any, BinaryIO

import numpy as np

from kernels.errors import LoweringError, ScheduleError
from kernels.native import lower
from kernels.native.executable import Call
from kernels.problem import parse_problem
from kernels.problem.iteration import is_packed_ahead
from kernels.process import die_with_parent
from kernels.reference import compare, empty_aligned, make_operands, poison, reference
from kernels.schedule import Schedule
from kernels.target import resolve
from kernels.target.microbench import peak_gflops
from search.measure import Run, Samples, interleave, measure, sample_cost
from search.peers import available_peers
from search.peers.screen import Bench, Timed, screen
from search.peers.variant import PeerAbsentError, Variant, why_wrong
from search.protocol import Message, read_message, write_message

TRIAL_BUDGET_S = 0.08
CLEARLY_SLOWER = 1.25
LEAST_BENCH_ROUNDS, MOST_BENCH_ROUNDS = 7, 25


class FailureError(Exception):
    """A candidate's failure with its class, and which of several it was."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.index = 0


class Session:
    """One problem's operands, reference and scratch, made once and used by every trial."""

    def __init__(self, problem: str, target: str, seed: int) -> None:
        self.problem = parse_problem(problem)
        self.target = resolve(target)
        self.operands = make_operands(self.problem, seed)
        self.initial = self.operands["C"].copy()
        self.expected = reference(self.problem, self.operands)
        self.arena: dict[str, Any] = {}
        self.screened: dict[str, list[Timed]] = {}
        gc.collect()

    def call(self, steps: Any) -> Call:
        """Compile a schedule and bind it to the operands and the arena.

        Constant weights are packed at binding and stay, so their panels are not shared.
        """
        schedule = Schedule.from_json(steps)
        executable = lower(self.problem, schedule, self.target)
        for name, size in executable.scratch_bytes.items():
            held = self.arena.get(name)
            own = is_packed_ahead(self.problem, name)
            if held is None or held.size < size or own:
                self.arena[name] = empty_aligned((size,), np.uint8)
        return executable.bind(self.operands, self.arena)

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
        """Compile, check and time one schedule."""
        begin = time.perf_counter()
        call = self.call(steps)
        compiled = time.perf_counter() - begin
        error, tolerance = self.check(call)
        limit = best_s * CLEARLY_SLOWER if best_s else None
        samples, stopped = measure(call, TRIAL_BUDGET_S, limit, self.target.threads)
        return {
            "times": samples.times,
            "rejected": samples.rejected,
            "pruned": stopped,
            "compile_s": compiled,
            "max_error": error,
            "tolerance": tolerance,
        }

    def finals(self, schedules: list[Any], rounds: int, with_peers: bool) -> Message:
        """Time the finalists again, and the peers with them, in interleaved rounds."""
        runs = [self.call(steps) for steps in schedules]
        for index, run in enumerate(runs):
            try:
                self.check(run)
            except FailureError as failure:
                failure.index = index
                raise
        peers = self._right_peers() if with_peers else []
        contenders: list[Run] = [*runs, *(way.run for way in peers)]
        samples, peak = self._with_peak(contenders, rounds)
        times = [s.times for s in samples]
        return {
            "times": times[: len(runs)],
            "peers": _best_ways(peers, times[len(runs) :]),
            "peak_gflops": peak,
            "scratch_bytes": [run.scratch_bytes for run in runs],
        }

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


def answer(session: Session | None, request: Message) -> tuple[Session | None, Message]:
    """Do what one request asks; failures of candidates become answers, not exceptions."""
    try:
        what = request["do"]
        if what == "setup":
            session = Session(request["problem"], request["target"], request["seed"])
            return session, {"ok": True}
        assert session is not None, "setup comes first"
        if what == "trial":
            return session, session.trial(request["steps"], request["best_s"])
        if what == "peer":
            return session, session.peer(request["name"])
        if what == "beside":
            return session, session.beside(request["steps"], request["peers"], request["budget_s"])
        return session, session.finals(request["schedules"], request["rounds"], request["peers"])
    except FailureError as failure:
        return session, {
            "failure": failure.kind,
            "message": str(failure),
            "index": failure.index,
        }
    except ScheduleError as error:
        return session, {"failure": "constraint", "message": str(error)}
    except LoweringError as error:
        return session, {"failure": "compile", "message": str(error)}
    except MemoryError as error:
        return session, {"failure": "memory", "message": str(error) or "out of memory"}
    except Exception as error:
        # The boundary between a candidate and the search: whatever it raises is its own.
        return session, {"failure": "runtime", "message": f"{type(error).__name__}: {error}"}


def private_output() -> BinaryIO:
    """The real stdout for answers alone; whatever else prints goes to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def main() -> None:
    """Answer requests until the input ends."""
    die_with_parent()
    out = private_output()
    session: Session | None = None
    for line in sys.stdin.buffer:
        session, reply = answer(session, read_message(line))
        write_message(out, reply)


if __name__ == "__main__":
    main()
