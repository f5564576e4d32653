import json
from dataclasses import replace

import pytest
from sqlalchemy import text

from tests.service import fakes
from tests.service.archive.stores import execute
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import MOST_EARLY, MOST_SOLVED, Solved
from tilewise.search.space.points import TilePoint
from tilewise.service.db import models, writing
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import lease, queue
from tilewise.service.jobs.trial_store import PACES_FOR, SqlTrialStore

LARGE, SMALL = "matmul:m=64,n=48,k=32,dtype=f32", "matmul:m=8,n=8,k=8,dtype=f32"


@pytest.fixture
def make(sessions, submit):
    """Makes the store of a new job, with trials."""

    def made(*trials, **request):
        store = SqlTrialStore(sessions, submit(**request))
        for trial in trials:
            store.add(trial)
        return store

    return made


def pruned(number, **options):
    return replace(fakes.trial(number, **options), state="pruned")


def test_trials_come_back_equal_and_in_order_and_a_number_is_taken_once(make):
    store, trials = make(), [fakes.trial(0), pruned(1), fakes.failed_trial(2)]
    for number in (2, 0, 1):
        store.add(trials[number])
    with pytest.raises(ValueError, match="trial 0 is stored already"):
        store.add(fakes.failed_trial(0))
    assert store.trials() == trials


def test_a_page_skips_what_is_no_trial_and_goes_on_behind_it(sessions, make):
    store = make(*map(fakes.trial, (0, 2, 3, 7)), trials=10)
    execute(sessions, "UPDATE trials SET time_us = -1.0 WHERE number = 2")
    assert store.page(0, 2) == ([fakes.trial(0)], 3)
    assert store.page(3, 2) == ([fakes.trial(3), fakes.trial(7)], None)
    assert store.page(8, 2) == ([], None)
    store.ensure(fakes.trial(2))
    assert [trial.number for trial in store.trials()] == [0, 2, 3, 7]


def test_a_store_knows_the_paces_of_other_searches_of_late(sessions, make):
    def at_factor(number, factor):
        return replace(fakes.trial(number), speed_factor=factor)

    steady = map(at_factor, range(3), (1.0, 1.5, 1.25))
    make(*steady, fakes.failed_trial(3), problem=LARGE)
    make(at_factor(0, 2.0), replace(pruned(1), speed_factor=9.0), at_factor(2, None), problem=SMALL)
    own = make(fakes.trial(0), problem=f"{SMALL},bias")
    assert own.earlier_speed_factors() == [[2.0], [1.0, 1.5, 1.25]]
    with writing(sessions) as session:
        for row in session.query(models.Trial).filter_by(pace=1.5):
            row.created_at -= PACES_FOR
        session.get_one(models.Job, 2).target = "cpu:another,threads=1"
    assert own.earlier_speed_factors() == [[1.0, 1.25]]


def test_a_store_knows_the_fastest_trials_of_other_searches(make, machine):
    speeds = [10.0 + (7 * number) % 41 for number in range(MOST_SOLVED + 8)]
    late = MOST_EARLY + 5
    earlier = make(
        *(fakes.trial(number, gflops=gflops) for number, gflops in enumerate(speeds)),
        pruned(97, gflops=999.0), fakes.failed_trial(98), fakes.trial(late, gflops=1.0),
        pruned(late + 1, gflops=500.0), problem=LARGE,
    )  # fmt: skip
    make(fakes.trial(0), problem="conv2d:n=1,h=8,w=8,ci=8,co=8,kh=1,kw=1,dtype=f32")
    newest = make(fakes.trial(0), pruned(late, gflops=500.0), problem=SMALL)
    asking = make(fakes.trial(0), problem=f"{SMALL},bias")
    known = [
        Solved.of(parse_problem(problem), machine.target, store.trials())
        for problem, store in ((SMALL, newest), (LARGE, earlier))
    ]
    assert known[0].slower == (), "its second trial was late and stopped"
    earlier = asking.earlier("matmul")
    assert [search.trials for search in earlier] == [2, len(speeds) + 3]
    assert asking.solved(earlier) == known, "the newest first, and nothing of its own"
    assert asking.solved(earlier[::-1]) == known[::-1]
    times = [time_us for _, time_us in known[1].points]
    assert times == sorted(fakes.measurement(gflops).time_us for gflops in speeds)[:MOST_SOLVED]
    assert len(known[1].slower) == len(speeds) + 1 - MOST_SOLVED


def test_times_with_cold_caches_are_told_to_cold_searches_alone(make):
    make(fakes.trial(0), problem=LARGE, cache="cold")
    hot, cold = (make(problem=SMALL, cache=cache) for cache in ("hot", "cold"))
    assert hot.earlier("matmul") == []
    assert [known.problem.canonical for known in cold.earlier("matmul")] == [LARGE]


def test_only_failures_on_the_same_target_are_known(sessions, make):
    """What was merely slow may be the best of another search; another machine may bear more."""
    make(fakes.failed_trial(3))
    execute(sessions, "UPDATE jobs SET target = 'cpu:another,threads=1'")
    full_disk = replace(fakes.failed_trial(4), failure="runtime")
    make(fakes.trial(0), pruned(1), fakes.failed_trial(2), full_disk)
    asking = make(cache="cold")
    assert asking.trials() == []
    assert asking.known_failures() == {fakes.schedule(2).hash}


def test_a_trial_extends_the_lease_and_counts_after_a_cancellation(sessions, submit, job):
    job_id = submit()
    with writing(sessions) as session:
        held = lease.claim_one(session, job_id, me())
    with writing(sessions) as session:
        queue.cancel(session, job_id)
    before = job(job_id).heartbeat_at
    store = SqlTrialStore(sessions, job_id, held)
    store.add(fakes.trial(0))
    assert job(job_id).heartbeat_at > before and store.trials() == [fakes.trial(0)]


FIELDS = {"rows": 1, "vectors": 4, "kind": "sweep", "partial_sums": 0, "depth": 8, "streams": 8}
POINTS = (
    {"tile": TilePoint(6, 4), "unroll": 2},
    {"tile": TilePoint(2, 3, "split", partial_sums=4), "pack_b": True},
    {"tile": TilePoint(**FIELDS), "outer": "cols"},
    {"tile": TilePoint(12, 32, "iree"), "inner": "rows"},
    {"tile": "2x2w8e", "unroll": 1},
    {"unroll": 4},
)
TEXTS = ["6x4", "2x3s4", "1x4w8i8", "12x32", "2x2w8e", None]


@pytest.fixture
def tiles(make):
    points = enumerate(POINTS)
    return make(*(replace(fakes.trial(n), params=point) for n, point in points), trials=10)


def test_a_tile_is_stored_as_its_fields_and_comes_back(sessions, tiles):
    """A text is of a row of an older version, or of an archive of one."""
    assert [trial.params for trial in tiles.trials()] == list(POINTS)
    with writing(sessions) as session:
        stored = text("SELECT CAST(params AS TEXT) FROM trials WHERE number = 2")
        assert json.loads(session.scalar(stored)) == {"tile": FIELDS, "outer": "cols"}
        for number, tile in enumerate(('"1x4w8i8"', '{"rows": 6}')):
            change = text("UPDATE trials SET params = :params WHERE number = :number")
            params = {"params": f'{{"tile": {tile}, "outer": "cols"}}', "number": number}
            session.execute(change, params)
    assert tiles.trials()[0].params == POINTS[2]
    assert [trial.number for trial in tiles.trials()] == [0, 2, 3, 4, 5], "a damaged tile"


def test_the_api_has_the_text_and_the_fields_of_tiles(client, tiles):
    shown = client.get("/v1/jobs/1/trials").json()["trials"]
    assert [trial["params"].get("tile") for trial in shown] == TEXTS
    description = {"description": "1 row x 4 vectors, k-block 8, 8 k-streams"}
    assert shown[2]["tile"] == FIELDS | description
    assert shown[4]["tile"] is shown[5]["tile"] is None
