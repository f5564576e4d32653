"""What the finals do in a runner's child: placements of the buffers, and when they end."""

from types import SimpleNamespace

import pytest

from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import detect
from tilewise.search.runner.child import interleaved
from tilewise.search.runner.child.interleaved import finals
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.timing.samples import Samples

PROBLEM = Matmul(m=24, n=40, k=16, dtype="f32")
PEAK_S = 0.25


def steps(rows: int) -> list[object]:
    return list(Schedule((Pack("B"), Register(rows, detect().lanes("f32")))).to_json())


class Timing:
    """Rounds that take their time by a clock of their own, and note when they had to end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, placement_s: float) -> None:
        self.now, self.placement_s = 100.0, placement_s
        self.until: list[float | None] = []
        monkeypatch.setattr(interleaved, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(interleaved, "interleave", self.interleave)
        self.session = Session(PROBLEM.canonical, detect().canonical, seed=0)
        monkeypatch.setattr(self.session, "peak", self.peak)

    def peak(self) -> float:
        self.now += PEAK_S
        return 100.0 + len(self.until)

    def interleave(self, runs, rounds, threads, cold, until) -> list[Samples]:
        self.until.append(until)
        self.now += self.placement_s
        at = float(len(self.until))
        return [Samples(1, times=[at] * rounds, rounds=list(range(rounds))) for _ in runs]


@pytest.mark.parametrize(
    ("budget_s", "placement_s", "placements"),
    [(None, 1e6, 4), (8.0, 0.5, 4), (8.0, 1.9, 4), (8.0, 3.0, 2), (8.0, 9.0, 1), (0.0, 1e-3, 1)],
)
def test_no_placement_begins_once_its_share_of_the_budget_is_spent(
    monkeypatch: pytest.MonkeyPatch, budget_s: float | None, placement_s: float, placements: int
) -> None:
    timing = Timing(monkeypatch, placement_s)
    reply = finals(timing.session, [steps(1), steps(4)], 3, False, 4, budget_s)
    assert len(timing.until) == placements
    for one in reply.finalists:
        assert one.times == tuple((float(at),) * 3 for at in range(1, placements + 1))
        assert one.rounds == ((0, 1, 2),) * placements
    assert reply.peak_gflops == 100.0 + placements, "the best of those around placements"


class Idle:
    """A call that computes nothing."""

    def __call__(self, _repeat: int) -> None: ...


def test_a_finalist_that_is_wrong_is_named_before_anything_is_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timing = Timing(monkeypatch, 0.5)
    call = timing.session.call

    monkeypatch.setattr(timing.session, "call", lambda s: Idle() if s == steps(4) else call(s))
    with pytest.raises(CandidateFailureError, match="deviation") as caught:
        finals(timing.session, [steps(1), steps(4), steps(2)], 3, False)
    assert (caught.value.kind, caught.value.index) == ("wrong", 1)
    assert timing.until == []
