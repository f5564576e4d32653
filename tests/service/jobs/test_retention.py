import random
import statistics
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.service.archive.stores import rows_of
from tests.service.conftest import PROBLEM
from tilewise.service.db import models, writing
from tilewise.service.db.base import now
from tilewise.service.db.trials import pack_samples, unpack_samples
from tilewise.service.jobs import idempotency, registry, retention

OTHER = "matmul:m=8,n=8,k=8,dtype=f32"
SAMPLES = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=200)


@given(SAMPLES, st.integers(3, 40))
def test_thinned_samples_tell_the_same(samples, keep):
    thinned = retention.thin(samples, keep)
    assert set(thinned) <= set(samples) and len(thinned) <= max(keep + 3, 1)
    assert (min(thinned), max(thinned)) == (min(samples), max(samples))
    if len(thinned) < len(samples):
        low, high = sorted(samples)[(len(samples) - 1) // 2], sorted(samples)[len(samples) // 2]
        assert low in thinned and high in thinned
        assert low <= statistics.median(thinned) <= high or len(thinned) % 2 == 0
    assert retention.thin(thinned, len(thinned)) == tuple(thinned)


@pytest.fixture
def trials(sessions, tuned, submit, run):
    rng = random.Random(0)
    other = submit(OTHER)
    run(other)
    with writing(sessions) as session:
        session.query(models.Schedule).filter_by(job_id=other).delete()
        for row in session.query(models.Trial):
            row.samples = pack_samples(tuple(rng.uniform(1e-5, 2e-5) for _ in range(60)))
            row.created_at = now() - timedelta(days=100)
    return tuned, other


def prune(sessions, **options):
    return retention.prune(sessions, timedelta(days=90), 9, **options)


def split(sessions):
    """The trials by job and number, and all other tables."""
    tables = rows_of(sessions)
    return {(row["job_id"], row["number"]): row for row in tables.pop("trials")}, tables


@pytest.mark.parametrize("complete", [True, False])
def test_old_samples_are_thinned_and_nothing_else_changes(sessions, trials, complete):
    evidence, other = trials
    with writing(sessions) as session:
        session.query(models.Schedule).update({"complete": complete})
        damaged = models.Trial.job_id == other, models.Trial.number == 0
        session.query(models.Trial).filter(*damaged).update({"samples": b"x" * 101})
    before, others = split(sessions)
    would = prune(sessions, dry_run=True)
    assert split(sessions) == (before, others)
    done = prune(sessions)
    after, now_others = split(sessions)
    assert now_others == others and done == would
    assert done.trials == 3 and done.bytes == 8 * done.samples > 0
    for (job, _), row in before.items():
        found = after[job, row["number"]]
        if job == evidence or len(row["samples"]) == 101:
            assert found == row, "the evidence of a schedule stays, and a damaged row"
            continue
        kept = unpack_samples(found["samples"])
        assert 9 <= len(kept) <= 11 and set(kept) <= set(unpack_samples(row["samples"]))
        assert found == {**row, "samples": found["samples"], "samples_taken": 60}
    thinned = [row["samples"] for row in after.values() if len(row["samples"]) != 101]
    assert sum(60 - len(unpack_samples(samples)) for samples in thinned) == done.samples
    assert other in {job for job, _ in after}


def test_old_keys_and_workers_are_forgotten_and_samples_counted(sessions, trials, machine, client):
    with writing(sessions) as session:
        for key, age in (("old", 25), ("new", 1)):
            made = now() - timedelta(hours=age)
            session.add(models.IdempotencyKey(subject="", key=key, request="", created_at=made))
        entry = registry.WorkerEntry("elsewhere:1:1", machine, (), "t", 1)
        registry.show(session, entry)
        session.query(models.Worker).one().seen_at = now() - timedelta(days=1)
    would, done = prune(sessions, dry_run=True), prune(sessions)
    assert (done.keys, done.workers) == (would.keys, would.workers) == (1, 1)
    assert [row["key"] for row in rows_of(sessions)["idempotency_keys"]] == ["new"]
    assert timedelta(hours=24) == idempotency.KEPT
    shown = client.get(f"/v1/jobs/{trials[1]}/trials").json()["trials"]
    assert {one["samples_taken"] for one in shown} == {60}
    assert all(9 <= len(one["samples_us"]) <= 11 for one in shown)
    assert client.get("/v1/schedules", params={"problem": PROBLEM}).status_code == 200
