"""Runners that time nothing: their times depend on schedules, and on who looks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.memory_store import MemoryStore
from tests.search.registers import register_of
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target
from tilewise.search.engine.tune import tune
from tilewise.search.records import TuneRequest
from tilewise.search.runner.protocol import (
    CandidateFailureError,
    FinalistsReply,
    TimedInTurn,
    TrialReply,
)
from tilewise.search.timing.speed_factor import WORTH


def trial_reply(times: Sequence[float], **changes: Any) -> TrialReply:
    """A candidate that was right, and took these seconds."""
    known = {"speed_factor": 1.0, "takes_over": False, "rejected": 0, "pruned": False,
            "compile_s": 0.1, "measure_s": 0.1, "max_error": 0.0}  # fmt: skip
    return TrialReply(tuple(times), **(known | changes))


def in_turn(times: Sequence[Sequence[float]], rounds: Sequence[Sequence[int]]) -> TimedInTurn:
    """Seconds and rounds of one contender, by placement."""
    return TimedInTurn(tuple(map(tuple, times)), tuple(map(tuple, rounds)))


def finals_reply(finalists: Sequence[TimedInTurn], **changes: Any) -> FinalistsReply:
    """Finalists that took these seconds, and no other libraries."""
    known = {"rejected": 0, "peers": {}, "peak_gflops": 100.0, "cold": None,
            "scratch_bytes": ({"A": 64, "B": 640},) * len(finalists)}  # fmt: skip
    return FinalistsReply(tuple(finalists), **(known | changes))


TARGET = Target("fake", vector_bytes=64, vector_registers=32, l1_bytes=48 << 10,
                l2_bytes=1 << 20, l3_bytes=32 << 20)  # fmt: skip
SQUARE = parse_problem("matmul:m=512,n=512,k=512,dtype=f32")


class FakeRunner:
    """Times that depend on the schedule alone; one register tile fails."""

    def __init__(self) -> None:
        self.hashes: list[str] = []
        self.failing_rows = -1
        self.finals_fail = 0
        self.failing_final: int | None = None

    def __enter__(self) -> "FakeRunner":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    ahead = 0
    start_s = 0.0

    def prepare(self, *_: object) -> None:
        pass

    settle = renew = prepare

    def trial(self, steps, best_s, control=None):
        schedule = Schedule.from_json(steps)
        self.hashes.append(schedule.hash)
        if register_of(schedule).rows == self.failing_rows:
            raise CandidateFailureError("crash", "SIGSEGV")
        seconds = self.seconds(schedule)
        pruned = best_s is not None and seconds > 1.25 * best_s
        takes_over = control is not None and seconds < WORTH * control["seconds"]
        return trial_reply([seconds] * 6, pruned=pruned, takes_over=takes_over)

    @staticmethod
    def seconds(schedule: Schedule) -> float:
        register = register_of(schedule)
        return 1e-3 * (1 + abs(register.rows - 7) + abs(register.cols - 48) / 16)

    def time_finalists(self, schedules, rounds, peers, placements=1, budget_s=None):
        if self.finals_fail:
            self.finals_fail -= 1
            raise CandidateFailureError("wrong", "now and then", self.failing_final)

        def timed(seconds):
            return in_turn([[seconds] * rounds] * placements, [range(rounds)] * placements)

        named = {"openblas": timed(2e-3)} if peers else {}
        ours = [timed(self.seconds(Schedule.from_json(steps))) for steps in schedules]
        return finals_reply(ours, peers=named)


def run(request: TuneRequest, store=None, runner=None, problem=SQUARE, **options):
    runner = runner or FakeRunner()
    store = store or MemoryStore()
    result = tune(problem, TARGET, request, store, make_runner=lambda *_: runner, **options)
    return result, runner, store


class Fluctuating(FakeRunner):
    """A runner on a machine that is slower in every third trial, and says so where it can."""

    most_pace = 1.5

    def __init__(self) -> None:
        super().__init__()
        self.controls: list = []

    def trial(self, steps, best_s, control=None):
        reply = super().trial(steps, best_s, control)
        speed_factor = self.most_pace if control and len(self.controls) % 3 == 0 else 1.0
        self.controls.append(control)
        times = tuple(seconds * speed_factor for seconds in reply.times)
        return replace(reply, times=times, speed_factor=speed_factor if control else None)


class Confused(Fluctuating):
    """A runner on which whatever is timed in a slow moment seems much faster than the control."""

    def __init__(self) -> None:
        super().__init__()
        self.to_beat: list[float | None] = []

    def trial(self, steps, best_s, control=None):
        self.to_beat.append(best_s)
        reply = super().trial(steps, best_s, control)
        if reply.speed_factor == 1.5:
            halved = tuple(t / 2 for t in reply.times)
            reply = replace(reply, times=halved, takes_over=True)
        return reply


class Long(FakeRunner):
    """A runner of candidates that take so long that few of them can meet in the finals."""

    @staticmethod
    def seconds(schedule: Schedule) -> float:
        return 6 * FakeRunner.seconds(schedule)
