"""Run candidates in a killable child process that times, and compile ahead in others.

A candidate that hangs, crashes, takes too much memory or is wrong fails one trial.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from tilewise.kernels.footprint import working_bytes
from tilewise.kernels.problem import Problem
from tilewise.kernels.system.children import ONE_THREAD
from tilewise.kernels.target import detect, parse_target, resolve
from tilewise.search.errors import RunnerError
from tilewise.search.records import CacheMode, TuneRequest
from tilewise.search.runner.child_process import ChildProcess
from tilewise.search.runner.compilers import MOST_COMPILERS, READY_AHEAD, Compilers
from tilewise.search.runner.processors import Claim, SpeedFactors, claim
from tilewise.search.runner.protocol import (
    CandidateFailureError,
    FinalistsReply,
    Message,
    PeerReply,
    RoundsReply,
    TrialReply,
)
from tilewise.search.timing.cold import added_bytes

SLOWEST_FLOPS = 2e9  # a candidate slower than this is as good as hung
BASE_LIMIT_S = 20.0
SETUP_LIMIT_S = 120.0
BASE_MEMORY = 1 << 30
LIBRARIES_BYTES = 3 << 30  # of code and buffers of other libraries
OPERAND_COPIES = 8  # in their layouts
FINALIST_COPIES = 32
"""Of constant weights, packed by each of the finalists that are timed together; Strassen's of two
levels are three copies."""
PEER_LIMIT_S = 240.0  # to load a library, compile for it, and check each of its ways
PARK_EARLY = {
    "OPENBLAS_THREAD_TIMEOUT": "20",  # log2 of cycles of the processor's counter; by itself 28
    "GOMP_SPINCOUNT": "20000",  # by itself 300000
    "KMP_BLOCKTIME": "1",  # ms, of builds with libiomp or libomp; by itself 200
}
"""Idle threads of the peers park within a millisecond, and not while calls follow at once."""
AVX512_KERNELS = {"OPENBLAS_CORETYPE": "SkylakeX"}
"""OpenBLAS has AVX2 kernels, at half the speed, for processors whose name it does not know."""


@dataclass(frozen=True)
class RunnerLimits:
    """Seconds and bytes that one request may take."""

    trial_s: float
    setup_s: float
    memory_bytes: int

    @classmethod
    def for_problem(cls, problem: Problem, measuring_bytes: int = 0) -> "RunnerLimits":
        """Return limits that any sane candidate of the problem meets.

        `measuring_bytes` are those of the measurement itself.
        """
        work_s = problem.flops / SLOWEST_FLOPS
        packed_bytes = FINALIST_COPIES * problem.bytes if problem.has_constant_weights else 0
        return cls(
            trial_s=BASE_LIMIT_S + 10 * work_s,
            setup_s=SETUP_LIMIT_S + 10 * work_s,
            memory_bytes=BASE_MEMORY + 2 * working_bytes(problem) + packed_bytes + measuring_bytes,
        )

    @classmethod
    def with_libraries(cls, problem: Problem) -> "RunnerLimits":
        """Return limits with memory for other libraries and operands in their own layouts."""
        limits = cls.for_problem(problem)
        added = LIBRARIES_BYTES + OPERAND_COPIES * problem.bytes
        return replace(limits, memory_bytes=limits.memory_bytes + added)


def library_environment(target: str) -> dict[str, str]:
    """Return the environment that holds libraries to the threads of a canonical target.

    It also names the kernels of OpenBLAS where its own choice may be slower.
    """
    threads = parse_target(target).threads
    kernels = AVX512_KERNELS if "avx512f" in detect().features else {}
    limits = dict.fromkeys(ONE_THREAD, str(threads)) | kernels
    return limits | PARK_EARLY if threads > 1 else limits


CHILD = "tilewise.search.runner.child"
COMPILER = "tilewise.search.runner.child.compiler"


@dataclass
class Runner:
    """Runs candidates of one problem in a child process; a context manager.

    Prepared candidates are compiled on other processors meanwhile, if there are any. `child` and
    `compiler` are the modules that the processes run; tests name misbehaving ones.
    """

    problem: Problem
    target: str
    seed: int = 0
    limits: RunnerLimits | None = None
    child: str = CHILD
    cache: CacheMode = "hot"
    compiler: str = COMPILER
    _speed_factors: SpeedFactors = field(default_factory=SpeedFactors, init=False, repr=False)
    _claim: Claim | None = field(default=None, init=False, repr=False)
    _timing: ChildProcess | None = field(default=None, init=False, repr=False)
    _compilers: Compilers | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> "Runner":
        self._claim = claim(self.target)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _limits(self) -> RunnerLimits:
        if self.limits is not None:
            return self.limits
        emptying = added_bytes(resolve(self.target)) if self.cache == "cold" else 0
        return RunnerLimits.for_problem(self.problem, emptying)

    @property
    def processors(self) -> Claim:
        """Where this runner times and compiles; RunnerError unless it is open."""
        if self._claim is None:
            raise RunnerError("a runner that is not open has no processors; use it by `with`")
        return self._claim

    @property
    def ahead(self) -> int:
        """How many candidates are worth preparing while one is timed."""
        return READY_AHEAD if self.processors.others else 0

    @property
    def start_s(self) -> float:
        """Start time of the timing process in seconds."""
        return self._timed.start_s

    def prepare(self, steps: list[Any]) -> None:
        """Compile a schedule while others are timed."""
        if self._compilers is None:
            others = self.processors.others
            if not others:
                return
            count = min(MOST_COMPILERS, len(others))
            children = [self._child(self.compiler, others) for _ in range(count)]
            self._compilers = Compilers(children, self._limits.trial_s)
        self._compilers.prepare(steps)

    def trial(
        self, steps: list[Any], best_s: float | None, control: Message | None = None
    ) -> TrialReply:
        """Compile (unless prepared), check and time one schedule.

        Raises CandidateFailureError for its failure, RunnerError if the child cannot be started.
        """
        self._timed.start()  # while the first candidate is compiled
        ahead_s = None
        if self._compilers:
            self._compilers.help(steps, self._timed)
            ahead_s = self._compilers.finish(steps)
        request = {"do": "trial", "steps": steps, "best_s": best_s, "control": control}
        reply = self._ask_with_control(request)
        if ahead_s is not None:
            reply = replace(reply, compile_s=reply.compile_s + ahead_s)
        if 2 * reply.rejected > len(reply.times) or self._is_slow_here(reply):
            self._time_elsewhere()
        return reply

    def _ask_with_control(self, request: Message) -> TrialReply:
        """Run a trial; if the child dies, retry without the control, and so without limits."""
        limit_s = self._limits.trial_s
        try:
            return self._timed.ask(request, limit_s, TrialReply)
        except CandidateFailureError as failure:
            if request["control"] is None or failure.kind not in ("crash", "memory", "runtime"):
                raise
            alone = request | {"control": None, "best_s": None}
            return self._timed.ask(alone, limit_s, TrialReply)

    def _is_slow_here(self, reply: TrialReply) -> bool:
        timing, speed_factor = self.processors.timing, reply.speed_factor
        if timing is None or speed_factor is None or reply.pruned:
            return False
        (processor,) = timing
        return self._speed_factors.is_to_leave(processor, speed_factor, time.monotonic())

    def time_finalists(
        self,
        schedules: list[list[Any]],
        rounds: int,
        peers: bool,
        placements: int = 1,
        budget_s: float | None = None,
    ) -> FinalistsReply:
        """Time finalists (and peers) in interleaved rounds; raise as `trial`.

        `rounds` limits those on each of the `placements` of the buffers. No round begins after
        `budget_s`.
        """
        begin = time.monotonic()
        self.settle()
        self._timed.start()
        if budget_s is not None:
            budget_s = max(0.0, budget_s - (time.monotonic() - begin))
        request = {"do": "finalists", "schedules": schedules, "rounds": rounds, "with_peers": peers}
        request |= {"placements": placements, "budget_s": budget_s}
        limit_s = self._limits.trial_s * (len(schedules) + 1) + (budget_s or 0.0)
        return self._timed.ask(request, limit_s, FinalistsReply)

    def settle(self) -> None:
        """End the compilers, so that nothing of this runner competes with the child."""
        if self._compilers is not None:
            self._compilers.close()
            self._compilers = None

    def renew(self) -> None:
        """Use a fresh child from now on, on another processor if possible."""
        self._timed.close()
        self._time_elsewhere()

    def peer(self, name: str, steps: Sequence[Any] = ()) -> PeerReply:
        """Prepare and check one peer; `absent` in the reply says why it cannot take part.

        `steps` are of the schedule that some peers run. Raises CandidateFailureError if the peer
        kills the child, RunnerError as `trial`.
        """
        request = {"do": "peer", "name": name, "steps": list(steps)}
        return self._timed.ask(request, PEER_LIMIT_S + self._limits.trial_s, PeerReply)

    def time_with_peers(self, steps: list[Any], peers: list[str], budget_s: float) -> RoundsReply:
        """Time one schedule and all peers in interleaved rounds; raise as `trial`."""
        request = {"do": "with_peers", "steps": steps, "peers": peers, "budget_s": budget_s}
        limit_s = (PEER_LIMIT_S + self._limits.trial_s) * (1 + len(peers))
        return self._timed.ask(request, limit_s, RoundsReply)

    def close(self) -> None:
        """End all processes and release the processor."""
        self.settle()
        if self._timing is not None:
            self._timing.close()
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    @property
    def _timed(self) -> ChildProcess:
        if self._timing is None:
            processors = self.processors.timing
            self._timing = self._child(self.child, processors, cache=self.cache, seed=self.seed)
        return self._timing

    def _child(self, module: str, processors: set[int] | None, **setup: Any) -> ChildProcess:
        first = {"do": "setup", "problem": self.problem.canonical, "target": self.target, **setup}
        limits = self._limits
        environment = library_environment(self.target)
        return ChildProcess(
            module, first, limits.setup_s, limits.memory_bytes, environment, processors
        )

    def _time_elsewhere(self) -> None:
        """Leave a busy processor."""
        claimed = self.processors
        if claimed.change(self._speed_factors.left) and claimed.timing is not None:
            self._timed.move(claimed.timing)
            if self._compilers is not None:
                self._compilers.move(claimed.others)


RunnerFactory = Callable[[Problem, str, TuneRequest], AbstractContextManager[Runner]]


def local_runner(
    problem: Problem, target: str, request: TuneRequest
) -> AbstractContextManager[Runner]:
    """Return a child process of this machine."""
    return Runner(problem, target, request.seed, cache=request.cache)
