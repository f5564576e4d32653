"""The search itself on simulated timings, which depend on the schedule alone."""

from search.engine import tune as engine
from search.records import TuneResult
from tests.search.engine.fakes import FakeRunner


def tune(problem, target, request, store, **hooks) -> TuneResult:
    """`search.engine.tune.tune`, in whatever process, with nothing compiled."""
    return engine.tune(
        problem, target, request, store, make_runner=lambda *_: FakeRunner(), **hooks
    )
