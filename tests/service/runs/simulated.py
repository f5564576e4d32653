"""The search itself on simulated timings, which depend on the schedule alone."""

from tests.search.engine.fakes import FakeRunner
from tilewise.search.engine import tune as engine
from tilewise.search.records import TuneResult


def tune(problem, target, request, store, **hooks) -> TuneResult:
    """`tilewise.search.engine.tune.tune`, in whatever process, with nothing compiled."""
    return engine.tune(
        problem, target, request, store, make_runner=lambda *_: FakeRunner(), **hooks
    )
