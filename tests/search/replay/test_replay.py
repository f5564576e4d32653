import dataclasses
from pathlib import Path
from random import Random
from statistics import median

import pytest

from benchmarks.memory_store import MemoryStore
from benchmarks.places import SPACES
from benchmarks.replay.problems import METHODS
from benchmarks.replay.replay import RecordedSpace, replay
from tests.search.engine.fakes import SQUARE, TARGET, FakeRunner, run
from tilewise.kernels.target.costs import Costs
from tilewise.search.errors import RecordingError
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.recording import Recording
from tilewise.search.records import TuneRequest
from tilewise.search.space.space import Space

MAIN = ("large-f32", "skinny-f32", "tiny-f32", "odd-f32", "square-i32", "square-bf16",
        "conv3x3-f32", "conv1x1-f32")  # fmt: skip


def best_us(space: RecordedSpace) -> float:
    return space.recording.time_us(space.recording.by_time()[0])


def stored() -> Recording:
    """A job of the fake runner, as a recording."""
    store = MemoryStore()
    run(TuneRequest(trials=60, sampler="random"), store)
    values = {p.name: p.values for p in Space(SQUARE, TARGET).parameters}
    return Recording(SQUARE, TARGET, values, store.trials(), toolchain="of the tests")


def test_a_recording_comes_back_as_it_was(tmp_path: Path) -> None:
    recording = stored()
    first = recording.trials[0]
    recording.again[first.schedule.hash] = (1e-3, 2e-3, 3e-3)
    recording.trials[3] = dataclasses.replace(
        recording.trials[3], state="failed", failure="crash", message="SIGSEGV",
        samples=(), measurement=None, max_error=None,
    )  # fmt: skip
    beside = dataclasses.replace(recording.trials[5], samples=(6e-3, 6e-3, 6e-3), speed_factor=1.5)
    recording.trials[5] = beside
    path = tmp_path / "space.json.gz"
    recording.save(path)
    found = Recording.load(path)
    assert found.problem == recording.problem and found.target == recording.target
    assert found.again == recording.again
    assert found.time_us(found.trials[0]) == pytest.approx(2000)
    assert found.trials[5].speed_factor == 1.5
    assert found.time_us(found.trials[5]) == pytest.approx(4000), "at speed_factor 1"
    for old, new in zip(recording.trials, found.trials, strict=True):
        assert (old.schedule, old.params, old.state, old.origin, old.failure) == (
            new.schedule, new.params, new.state, new.origin, new.failure,
        )  # fmt: skip
        assert new.samples == pytest.approx(old.samples, abs=1e-9)


@pytest.mark.parametrize("content", [b"", b"no gzip", None])
def test_what_is_no_recording_is_refused(tmp_path: Path, content) -> None:
    path = tmp_path / "space.json.gz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordingError, match=r"space\.json\.gz"):
        Recording.load(path)


@pytest.mark.full
def test_a_stored_job_is_replayed_from_its_trials() -> None:
    recording = stored()
    space = RecordedSpace.of(recording)
    for sampler in ("surrogate", "tpe"):
        run_ = replay(space, TuneRequest(trials=40, sampler=sampler, seed=2))
        assert len(run_.trials) == 40
        hashes = [t.schedule.hash for t in run_.trials]
        assert len(set(hashes)) == 40 and set(hashes) <= set(space.trials)
        for trial, time_us in zip(run_.trials, run_.times_us, strict=True):
            assert time_us == pytest.approx(FakeRunner.seconds(trial.schedule) * 1e6)
    everything = replay(space, TuneRequest(trials=500))
    assert len(everything.trials) == len(recording.trials), "and ends there"


def test_what_was_not_recorded_is_replaced_by_the_nearest() -> None:
    space = RecordedSpace.of(stored())
    random = Random(1)
    for trial in list(space.trials.values())[:5]:
        assert space.nearest(trial.params) == trial.params
        assert space.free_neighbour(trial.params, lambda p, t=trial: p != t.params, random)
    anywhere = Space(SQUARE, TARGET).draw(random)
    assert space.nearest(anywhere) in space.points
    assert space.free_neighbour(anywhere, lambda _: False, random) is None


def test_the_same_seed_replays_the_same_search_with_any_number_in_flight() -> None:
    space = RecordedSpace.of(stored())
    request = TuneRequest(trials=40, seed=4)
    for in_flight in (1, 4):
        first, again = (replay(space, request, in_flight) for _ in range(2))
        assert first == again and len(first.trials) == 40


@pytest.mark.parametrize("name", [
    *MAIN[::2], *(pytest.param(n, marks=pytest.mark.full) for n in (*MAIN[1::2], *METHODS)),
])  # fmt: skip
def test_the_first_schedule_is_nearly_the_best_of_a_recorded_space(name: str) -> None:
    space = RecordedSpace.of(Recording.load(SPACES / f"{name}.json.gz"))
    own = Space(space.problem, space.target, space.has_scripts)
    first = own.schedule(prior_points(AnalyticalModel.shipped(own), 1)[0])
    assert first.hash in space.trials, "record what the prior proposes now"
    assert space.recording.time_us(space.trials[first.hash]) <= best_us(space) / 0.8


@pytest.mark.parametrize(
    "name",
    ["odd-f32", *(pytest.param(n, marks=pytest.mark.full)
                  for n in ("large-f32", "filtering-f32", "sweep-bf16"))],
)  # fmt: skip
def test_the_default_sampler_needs_few_trials(name: str) -> None:
    space = RecordedSpace.of(Recording.load(SPACES / f"{name}.json.gz"))
    limit = best_us(space) * 1.02
    for seed in range(3):
        run_ = replay(space, TuneRequest(trials=60, seed=seed), until_us=limit)
        needed = run_.trials_to(limit)
        assert needed is not None and needed <= 40
        assert run_.slow_share(limit * 2) <= 0.15


def trials_to_the_best(space: RecordedSpace, costs: Costs | None = None) -> float:
    """Until within 2%, the median of five searches."""
    limit = best_us(space) * 1.02
    requests = [TuneRequest(trials=100, seed=seed) for seed in range(5)]
    runs = [replay(space, request, 1, limit, [], costs) for request in requests]
    return median(run.trials_to(limit) or 101 for run in runs)


@pytest.mark.full
@pytest.mark.parametrize("name", ["unseen-skinny-f32", "unseen-bf16", "unseen-conv3x3-f32"])
def test_costs_of_the_processor_bring_the_best_sooner_on_shapes_they_were_not_fitted_to(name):
    space = RecordedSpace.of(Recording.load(SPACES / "cascadelake" / f"{name}.json.gz"))
    other = TARGET.core.costs
    assert space.target.core.costs != other
    assert trials_to_the_best(space) <= trials_to_the_best(space, other) / 2


@pytest.mark.parametrize("name", ["large-f32", "column-f32", "sweep-bf16"])
def test_a_seeded_search_asks_for_the_same_schedules(name: str, golden) -> None:
    """The tiles in the order of the space, and the schedules that each sampler tries."""
    space = RecordedSpace.of(Recording.load(SPACES / f"{name}.json.gz"))
    lines = [f"tiles {' '.join(map(str, space.values('tile')))}"]
    for sampler in ("surrogate", "local", "tpe", "random"):
        tried = replay(space, TuneRequest(trials=40, sampler=sampler, seed=3)).trials
        lines.append(f"{sampler} {' '.join(trial.schedule.hash for trial in tried)}")
    golden(f"{name}.txt", "\n".join(lines) + "\n")
